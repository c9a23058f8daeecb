"""Fixtures for tests of ops."""

import jax
import jaxtyping
import pytest


@pytest.fixture
def x64():
    """64-bit types, for comparing with an oracle to rounding."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def plain_errors():
    """Leaves shapes and types to the library's own checks, as in a user's session."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
