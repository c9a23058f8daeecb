"""What the paper says of exclusion, and what came out here."""

import itertools
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.common.claim import Claim, judged
from experiments.exclusive import overhead
from experiments.exclusive.pairs import Pair, difference, mean_similarity, pairs
from experiments.exclusive.rows import OF_EXCLUSION

CAUTION = (
    "A gain is how much lower the bits per byte are with exclusion than without, the "
    "mean over seeds. In parentheses: the gain, or how much lower the first row is "
    "than the second, and its 95 % interval. A claim held here where the interval is "
    "above 0, did not where it is below, and cannot be told at this scale where 0 lies "
    "in it; a claim of several rows held where it did in each, and did not where it "
    "did not in one. A cost is minimal where a training step takes at most 3 % longer. "
    "These models are thousands of times smaller than the paper's and trained for "
    "minutes: what held may not hold at its scale, nor the other way round."
)
PAPER = "Zhai 2026"
HELD, FAILED, OPEN = WORDS = ("held", "did not hold", "cannot be told at this scale")
# Of a training step at a context of 1,024 tokens.
SMALL = 0.03
FORM = ".4f"

# The options of a family of rows, what the paper says of it, and its number.
FAMILIES = {
    "size": (
        "Exclusion helps at every size",
        "0.7B, 1.3B, 2.7B: a clear margin (figure 3)",
    ),
    "rate": (
        "Exclusion helps at every learning rate",
        "1e-4 to 6e-4: a margin that hardly changes (figure 4)",
    ),
    "length": (
        "Exclusion helps at every length",
        "512 to 16,384 tokens: a margin at each (figure 5)",
    ),
    "sinks": ("Exclusion helps with learnt sinks too", "0, 1, 4 sinks (figure 6)"),
}
# What others report of forms that the paper has not.
ELSEWHERE = {
    "gate": "losses with none, sigmoid, tanh: 3.8104, 3.8081, 3.8126 at width 512; "
    "3.4339, 3.4373, 3.4448 at 768",
    "layers": "all 11 layers ahead of the last 4 by 0.0016 and 0.0018 bits per byte",
}


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose rows are all in the results."""
    if results["study"] == "overhead":
        return _of_costs(results)
    found = pairs(results)
    said = [] if "xsa" not in found else [_main(found["xsa"])]
    for option in FAMILIES:
        said += _family(option, found)
    return [*said, *_longer(found), *_unlike(found), *_of_similarity(results)]


def _main(pair: Pair) -> Claim:
    return Claim(
        "Exclusion lowers the loss",
        PAPER,
        "average of eight tasks +0.26, +1.03, +1.36 points at 0.7B, 1.3B, 2.7B, one "
        "run each; losses in figure 3 alone",
        _means({"XSA": pair.xsa, "SA": pair.sa}),
        judged(pair.difference, WORDS, FORM),
    )


def _family(option: str, found: Mapping[str, Pair]) -> list[Claim]:
    """The plain rows and those with the option alone."""
    few = [pair for pair in found.values() if pair.row.options.keys() <= {option}]
    if len(few) < 2:
        return []
    claim, theirs = FAMILIES[option]
    sides = [pair.difference.side for pair in few]
    said = FAILED if -1 in sides else HELD if set(sides) == {1} else OPEN
    gains = "; ".join(
        f"{pair.row.condition} {pair.difference.written(FORM)}" for pair in few
    )
    held = f"{said} ({sides.count(1)} of {len(few)} held)"
    return [Claim(claim, PAPER, theirs, f"gains {gains}", held)]


def _longer(found: Mapping[str, Pair]) -> list[Claim]:
    """Whether the gain is larger at the longest rows than at the shortest."""
    lengths = {
        int(pair.row.options["length"]): pair.gains
        for pair in found.values()
        if pair.row.options.keys() == {"length"}
    }
    if len(lengths) < 2:
        return []
    short, long = min(lengths), max(lengths)
    if not lengths[short].keys() & lengths[long].keys():
        return []
    return [
        Claim(
            "The gain grows with the length",
            PAPER,
            "it does from 512 to 16,384 tokens (figure 5)",
            f"gain at {long} tokens less that at {short}",
            judged(difference(lengths[short], lengths[long]), WORDS, FORM),
        )
    ]


def _unlike(found: Mapping[str, Pair]) -> list[Claim]:
    """Gates and subsets of layers, against exclusion of everything in every layer."""
    return [
        Claim(
            f"All of it in every layer does better than {pair.row.condition}",
            "public trials, one run each",
            ELSEWHERE[option],
            _means({"all": whole.xsa, pair.row.condition: pair.xsa}),
            judged(difference(whole.xsa, pair.xsa), WORDS, FORM),
        )
        for pair in found.values()
        for option in sorted(pair.row.options.keys() & OF_EXCLUSION)
        if (whole := found.get(pair.row.whole)) and whole.xsa.keys() & pair.xsa.keys()
    ]


def _means(sides: Mapping[str, Mapping[int, float]]) -> str:
    """The mean over seeds of each."""
    said = (f"{name} {fmean(bits.values()):{FORM}}" for name, bits in sides.items())
    return f"bits per byte: {', '.join(said)}"


def _of_similarity(results: Mapping[str, Any]) -> list[Claim]:
    """Figure 1, of the rows without exclusion."""
    rows = {row["row"]: mean_similarity(row) for row in results["rows"]}
    sa = rows.get("sa")
    if not sa:
        return []
    outputs = sa["output_cosine"]
    rising = all(a < b for a, b in itertools.pairwise(outputs))
    shown = ", ".join(f"{x:.2f}" for x in outputs)
    centred = ", ".join(f"{x:.2f}" for x in sa["centred_output_cosine"])
    return [
        Claim(
            "Outputs of attention point along the own value, more so in deeper layers",
            PAPER,
            "1.3B, figure 1: about 0.2 in the first layers to about 0.6 in the last, "
            "read off by others",
            f"cosines by layer {shown}; without the mean over tokens {centred}",
            HELD if rising and min(outputs) > 0 else FAILED,
        )
    ]


def _of_costs(results: Mapping[str, Any]) -> list[Claim]:
    steps = [c for c in overhead.costs(results) if c["direction"] == "step"]
    if not steps:
        return []
    step = steps[0]
    return [
        Claim(
            "The cost is minimal",
            PAPER,
            "time and memory of a block, without numbers (figure 2)",
            f"training step at {step['n']:,} tokens: {100 * step['median']:+.1f} % by "
            f"medians, {100 * step['least']:+.1f} % by the shortest calls",
            HELD if step["least"] <= SMALL else FAILED,
        )
    ]
