"""Accelerators as their makers describe them, and how long a step takes at least.

Sources: cloud.google.com/tpu/docs (v5e, v5p, v6e), nvidia.com (H100 SXM). Products are
of bfloat16 without sparsity. Bandwidth between chips is what one chip sends, half of
what is published for both directions: of H100 NVLink's inside a host of 8, and 400 Gb/s
a GPU between hosts.
"""

from typing import NamedTuple


class Accelerator(NamedTuple):
    """flops, bytes and bytes a second; near: devices that share the fast links."""

    flops: float
    memory: float
    link: float
    near: int | None = None
    far_link: float | None = None

    def bandwidth(self, group: int) -> float:
        """Between the members of a group of so many neighbours."""
        far = self.near is not None and group > self.near
        return self.far_link if far and self.far_link else self.link


ACCELERATORS = {
    "TPU v5e": Accelerator(197e12, 16e9, 100e9),
    "TPU v6e": Accelerator(918e12, 32e9, 200e9),
    "TPU v5p": Accelerator(459e12, 95e9, 300e9),
    "H100": Accelerator(989e12, 80e9, 450e9, near=8, far_link=50e9),
}
