"""Fixtures for tests of train."""

import jaxtyping
import pytest


@pytest.fixture
def plain_errors():
    """Leaves shapes and types to the library's own checks, as in a user's session."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
