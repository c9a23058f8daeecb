"""How every test runs: several devices, strict shapes, annotations that execute."""

import os
from pathlib import Path

import jax
import jaxtyping
import pytest

from tests.compiling import LIGHT, flags

# Four devices of one processor are enough to see that a sharded computation equals the
# one on a single device. JAX_PLATFORMS=cuda runs the suite on an accelerator instead.
jax.config.update("jax_num_cpu_devices", 4)
if "JAX_PLATFORMS" not in os.environ:
    jax.config.update("jax_platforms", "cpu")

# Most of a test's time is compilation, and most of that is spent on making fast what
# runs once: without it the suite takes less than half as long. Flags that are set
# outside come later and win. XLA reads them when it starts, in child processes too.
os.environ["XLA_FLAGS"] = f"{flags(LIGHT)} {os.environ.get('XLA_FLAGS', '')}"

# Arrays of different ranks meet only where the code says so.
jax.config.update("jax_numpy_rank_promotion", "raise")

# A second run finds everything compiled; a fresh clone gains nothing. Processes may
# share the folder: an entry read half-written counts as absent (see filterwarnings).
if "CI" not in os.environ:
    cache = Path(__file__).resolve().parent.parent / ".jax_cache"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# The shapes and types that a signature in the package states are checked at each call.
jaxtyping.install_import_hook("attn_jax", "beartype.beartype")


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
