"""How every test runs: several devices, strict shapes, annotations that execute."""

import os

# They are read when jax is imported, so they come before it. Four devices of one
# processor are enough to see a sharded computation equal the one on a single device.
FLAGS = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{FLAGS} --xla_force_host_platform_device_count=4".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jaxtyping  # noqa: E402

# Arrays of different ranks meet only where the code says so.
jax.config.update("jax_numpy_rank_promotion", "raise")

# The shapes and types that a signature in the package states are checked at each call.
jaxtyping.install_import_hook("attn_jax", "beartype.beartype")
