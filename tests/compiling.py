"""How tests compile: quickly, or as for users."""

import jaxlib.version

LIGHT = {"xla_backend_optimization_level": 0}
FAST = {"xla_backend_optimization_level": 3}
# A later XLA emits fusions in one way, and stops at a flag that it does not know.
if jaxlib.version.__version_info__ < (0, 11):
    LIGHT["xla_cpu_use_fusion_emitters"] = False
    FAST["xla_cpu_use_fusion_emitters"] = True


def flags(options: dict[str, int]) -> str:
    """Options of a compilation as what XLA_FLAGS holds."""
    return " ".join(f"--{name}={value!s}".lower() for name, value in options.items())
