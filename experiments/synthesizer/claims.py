"""What the paper says of its rows, and what came out here."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from experiments.common.claim import Claim, judged, paired_difference, verdict
from experiments.synthesizer.paper import TABLE
from experiments.synthesizer.speed import milliseconds

CAUTION = (
    "In parentheses: how much lower the first row is than the second, the mean over "
    "seeds and its 95 % interval. A claim held here where the interval is above 0, did "
    "not where it is below, and cannot be told at this scale where 0 lies in it. Of "
    "attention weights the layers of seed 0 are counted, of speed the lengths. These "
    "models are much smaller and trained for minutes: what held may not hold at the "
    "paper's scale, nor the other way round. The paper's numbers are as others' notes "
    "have them; those in parentheses no note confirms."
)
WORDS = ("held", "did not hold", "cannot be told at this scale")


class Order(NamedTuple):
    """A claim that one row is better than another.

    theirs: the paper's numbers, where they aren't those of its table 2.
    """

    claim: str
    better: str
    worse: str
    theirs: str | None = None


_HEADS = "(BLEU 19.43 with 2 heads, 21.61 with 16)"

# By study, as the paper's numbers are there.
ORDERS = {
    "language": (
        Order("Logits have to be learnt", "random", "fixed_random"),
        Order("Random logits stay behind dot products", "softmax", "random"),
        Order("Dense logits stay behind dot products", "softmax", "dense"),
        Order("Factorised random logits lose a little", "random", "factorized_random"),
        Order("Factorised dense logits lose a little", "dense", "factorized_dense"),
        Order(
            "Random and dense logits mixed, without dot products, stay behind these",
            "softmax",
            "random+dense",
        ),
        Order("Dense logits help dot products", "dense+softmax", "softmax"),
        Order("Random logits don't help dot products", "softmax", "random+softmax"),
        Order("More heads help random logits", "random@16", "random@2", _HEADS),
        Order("More heads help dense logits", "dense@16", "dense@2", _HEADS),
    ),
    "translation": (
        Order("Logits have to be learnt", "random", "fixed_random"),
        Order("Random logits stay behind dot products", "softmax", "random"),
        Order("Dense logits stay behind dot products", "softmax", "dense"),
        Order("Dense logits get ahead of random ones", "dense", "random"),
        Order(
            "Random and dense logits mixed do as well as dot products or better",
            "random+dense",
            "softmax",
        ),
        Order("Random logits help dot products", "random+softmax", "softmax"),
    ),
    "classification": (
        Order(
            "Factorised random logits help dot products",
            "factorized_random+softmax",
            "softmax",
            "(accuracy on AGNews 88.83 -> 89.13, on IMDb 81.34 -> 84.61)",
        ),
    ),
    "speed": (
        Order(
            "A random layer is faster than dot products",
            "random",
            "softmax",
            "steps a second 4.26, 3.90 (T5 base, table 4)",
        ),
        Order(
            "A dense layer is slower than dot products",
            "softmax",
            "dense",
            "steps a second 3.90, 3.61 (T5 base, table 4)",
        ),
        Order(
            "Adding dense logits to dot products slows them",
            "softmax",
            "dense+softmax",
            "steps a second 3.90, 3.34 (T5 base, table 4)",
        ),
        Order(
            "Adding random logits to dot products slows them",
            "softmax",
            "random+softmax",
            "steps a second 3.90, 3.79 (T5 base, table 4)",
        ),
    ),
}


class Basis(NamedTuple):
    """By which number rows are ordered, less being better, and how it is called."""

    key: str
    title: str


BASES = {
    "language": Basis("validation_perplexity", "perplexity"),
    "translation": Basis("validation_perplexity", "perplexity"),
    "classification": Basis("test_loss", "loss"),
    "speed": Basis("both", "milliseconds"),
}
# What the paper has in table 2 for a study.
THEIRS = {
    "language": ("LM1B perplexity", "perplexity"),
    "translation": ("WMT14 BLEU", "bleu"),
}


def claims(results: Mapping[str, Any]) -> list[Claim]:
    """The claims whose rows are all in the results."""
    rows = {row["row"]: row for row in results["rows"]}
    study = results["study"]
    orders = [
        _claim(order, pairs, study)
        for order in ORDERS[study]
        if (pairs := _pairs(order, rows, study))
    ]
    deviations = {name: _deviations(row) for name, row in rows.items()}
    return [
        *orders,
        *(
            _wider(name, deviations)
            for name in ("random", "dense")
            if deviations.get(name) and deviations.get("softmax")
        ),
    ]


def losses(row: Mapping[str, Any], study: str) -> dict[int, float]:
    """What rows are ordered by: of each seed, or milliseconds at each length."""
    key = BASES[study].key
    if study == "speed":
        return milliseconds(row, key)
    return {run["seed"]: run[key] for run in row["runs"]}


def _pairs(
    order: Order, rows: Mapping[str, Any], study: str
) -> dict[int, tuple[float, float]]:
    """What both rows have, the better one first, by seed or length."""
    if not {order.better, order.worse} <= rows.keys():
        return {}
    better, worse = (losses(rows[name], study) for name in (order.better, order.worse))
    return {
        key: (better[key], worse[key]) for key in sorted(better.keys() & worse.keys())
    }


def _claim(order: Order, pairs: Mapping[int, tuple[float, float]], study: str) -> Claim:
    both, numbers = (order.better, order.worse), [*pairs.values()]
    columns = zip(both, zip(*numbers, strict=True), strict=True)
    if study == "speed":
        said = [f"{name} {', '.join(f'{x:.1f}' for x in xs)}" for name, xs in columns]
        ours = f"{'; '.join(said)} ({', '.join(f'{n:,}' for n in pairs)} tokens)"
        held = verdict(numbers, WORDS, "length")
    else:
        ours = ", ".join(f"{name} {fmean(xs):.3f}" for name, xs in columns)
        held = judged(paired_difference(numbers), WORDS)
    return Claim(
        order.claim,
        "Tay et al. 2021",
        order.theirs or _of_table_2(both, study),
        f"{BASES[study].title}: {ours}",
        held,
    )


def _deviations(row: Mapping[str, Any]) -> list[float]:
    """Of the attention weights of each layer, where they were counted."""
    return [
        layer["deviation"]
        for run in row.get("runs", ())
        if (weights := run.get("weights"))
        for stack, layers in weights.items()
        if stack != "edges"
        for layer in layers
    ]


def _wider(name: str, deviations: Mapping[str, list[float]]) -> Claim:
    both = {each: deviations[each] for each in ("softmax", name)}
    means = [f"{each} {fmean(values):.3f}" for each, values in both.items()]
    return Claim(
        f"Weights of {name} logits vary more within a layer than of dot products",
        "Tay et al. 2021",
        "figures of weights by layer, without numbers",
        f"standard deviation: {', '.join(means)}",
        verdict(list(zip(*both.values(), strict=True)), WORDS, "layer"),
    )


def _of_table_2(names: tuple[str, str], study: str) -> str:
    what, key = THEIRS[study]
    numbers = ", ".join(f"{name} {getattr(TABLE[name], key)}" for name in names)
    return f"{what}: {numbers}"
