"""What the paper says about images, and what came out here."""

from collections.abc import Mapping
from typing import Any

from experiments.common.claim import Claim, verdict
from experiments.linear_images.table import WAYS, bits, speeds

CAUTION = (
    "Other images, smaller models and minutes of training: bits/dim do not compare "
    "with the paper's, and speeds are of another machine. What compares is linear "
    "attention beside softmax."
)
PAPER = "Katharopoulos et al. 2020"
# Bits a dimension within which two models count as equally good.
CLOSE = 0.1
# Pixels from which on the paper says anything about speed: those of MNIST.
LONG = 784


# What softmax does, how many images at a time (None is all that are written), where
# the paper says it, and its numbers.
FASTER = (
    (
        "recompute",
        None,
        "tables 1 and 2",
        "images/s: MNIST 142.8 to 0.45 (317x), CIFAR-10 17.85 to 0.004 (4,462x)",
    ),
    (
        "cache",
        None,
        "table 4",
        "images/s: MNIST 142.8 to 7.56 (19x), CIFAR-10 17.85 to 0.32 (56x)",
    ),
    (
        "recompute",
        1,
        "table 5",
        "s/image, CIFAR-10 on a CPU: 45.1 to 8,651 (192x)",
    ),
    (
        "cache",
        1,
        "table 5",
        "s/image, CIFAR-10 on a CPU: 45.1 to 71.9 (1.6x)",
    ),
)


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose models are all in the results."""
    rows = {row["model"]: row for row in results["rows"]}
    if not {"softmax", "linear"} <= rows.keys():
        return []
    return [_quality(rows), *_faster(results)]


def _quality(rows: Mapping[str, Any]) -> Claim:
    softmax, linear = bits(rows["softmax"]), bits(rows["linear"])
    return Claim(
        f"Linear attention learns images about as well as softmax (within {CLOSE})",
        f"{PAPER}, tables 1 and 2",
        "bits/dim: MNIST softmax 0.621, linear 0.644; CIFAR-10 3.47, 3.40",
        f"softmax {softmax:.3f}, linear {linear:.3f}, after as many updates",
        verdict([(linear, softmax + CLOSE)]),
    )


def _faster(results: Mapping[str, Any]) -> list[Claim]:
    """Linear attention beside each way of softmax, many and one image at a time."""
    found = speeds(results)
    linear, all_of_them = found["linear", "state"], results["config"]["generate"]
    return [
        Claim(
            "Linear attention writes images faster than softmax with "
            f"{WAYS[way]}, {count} at a time",
            f"{PAPER}, {where}",
            theirs,
            f"{_rate(linear[count], count)} to {_rate(times[count], count)} "
            f"({times[count] / linear[count]:,.1f}x)",
            _held(linear[count], times[count], results),
        )
        for way, wanted, where, theirs in FASTER
        for count in [wanted or all_of_them]
        for times in [found.get(("softmax", way))]
        if times is not None
    ]


def _rate(seconds: float, count: int) -> str:
    return f"{count / seconds:.3g} images/s"


def _held(linear: float, softmax: float, results: Mapping[str, Any]) -> str:
    """The claim is one about long sequences."""
    height, width, channels = results["images"]["shape"]
    pixels = height * width * channels
    if pixels < LONG:
        return f"cannot be told at {pixels} pixels"
    return verdict([(linear, softmax)])
