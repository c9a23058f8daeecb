"""The tables at the end, made from results alone."""

from collections.abc import Mapping
from typing import Any

from experiments.common import provenance
from experiments.common.tables import aligned, show_table

QUALITY = ("model", "bits/dim", "parameters", "training images/s", "compile s")
WAYS = {
    "recompute": "all pixels read again",
    "cache": "keys and values kept",
    "state": "a state kept",
}
PAPER_COLUMNS = (
    "paper",
    "MNIST bits/dim",
    "images/s",
    "CIFAR-10 bits/dim",
    "images/s",
    "s/image, CPU",
    "s/image, GPU",
)
# Katharopoulos et al. 2020, tables 1, 2, 4 and 5.
PAPER = (
    ("softmax", "0.621", "0.45", "3.47", "0.004", "8651.4", "300.1"),
    ("softmax, keys and values kept", "0.621", "7.56", "3.47", "0.32", "71.9", "70.4"),
    ("LSH-1", "0.745", "0.68", "3.39", "0.015", "2318.9", "221.6"),
    ("LSH-4", "0.676", "0.27", "3.51", "0.005", "-", "-"),
    ("linear", "0.644", "142.8", "3.40", "17.85", "45.1", "61.3"),
)


def quality(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """How good each model is, and how fast it was trained."""
    return [
        (
            row["model"],
            f"{bits(row):.3f}",
            f"{row['training']['parameters']:,}",
            _number(row["training"]["images_per_second"]),
            _number(row["training"]["compile_seconds"]),
        )
        for row in results["rows"]
    ]


def writing_columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    many = results["config"]["generate"]
    return (
        "images are written by",
        f"images/s, {many} at a time",
        "x baseline",
        "s/image, one at a time",
        "x baseline",
        "kB kept an image",
    )


def writing(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """How fast images are written, in how many ways; the first is the baseline."""
    found = speeds(results)
    many, one = results["config"]["generate"], 1
    first = next(iter(found.values()))
    return [
        (
            f"{model}, {WAYS[way]}",
            _number(many / times[many]),
            f"{first[many] / times[many]:,.1f}",
            f"{times[one]:.3g}",
            f"{first[one] / times[one]:,.1f}",
            f"{times['kept_bytes'] / 1000:,.1f}",
        )
        for (model, way), times in found.items()
    ]


def speeds(results: Mapping[str, Any]) -> dict[tuple[str, str], dict[Any, Any]]:
    """(model, way) -> {images at a time: median seconds}, and the bytes kept."""
    found: dict[tuple[str, str], dict[Any, Any]] = {}
    for row in results["rows"]:
        for timed in row["writing"]:
            times = found.setdefault((row["model"], timed["way"]), {})
            times[timed["images"]] = timed["median_seconds"]
            times["kept_bytes"] = timed["kept_bytes"]
    return found


def bits(row: Mapping[str, Any]) -> float:
    return row["training"]["held_out_bits_per_dim"]


def show(results: Mapping[str, Any]) -> None:
    """Print the tables and notes."""
    print()
    show_table(QUALITY, quality(results))
    show_table(writing_columns(results), writing(results))
    print("\n".join(notes(results)) + "\n")


def markdown(results: Mapping[str, Any]) -> str:
    """The tables, and the paper's beside them."""
    return "\n".join(
        [
            aligned(QUALITY, quality(results)),
            aligned(writing_columns(results), writing(results)),
            aligned(PAPER_COLUMNS, PAPER),
        ]
    )


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the numbers mean."""
    reference, config = results["reference"], results["config"]
    images, many = results["images"], config["generate"]
    return [
        f"bits/dim: over all pixels of {images['counted_images']:,} held-out images; a "
        f"uniform guess costs {reference['uniform_bits_per_dim']:.2f}, a table of "
        f"neighbouring pixels {reference['neighbours_bits_per_dim']:.2f}",
        f"images/s, s/image: whole images of {_pixels(results):,} pixels at "
        f"temperature 1, {many} or one at a time; medians of {config['repeats']}, all "
        "pixels read again timed once; compiling apart, in "
        + ", ".join(_compiled(row) for row in results["rows"])
        + " s",
        "all pixels read again: those so far, padded to the next eighth of an image",
        "kB kept an image: what decoding carries from pixel to pixel",
        "the paper's images/s are of one GPU, as many images at a time as it holds; "
        "its s/image are of one CIFAR-10 image at a time",
    ]


def scale(results: Mapping[str, Any]) -> str:
    """How large the run was, where and with what."""
    config, images = results["config"], results["images"]
    minutes = ", ".join(
        f"{row['model']} {(row['training']['training_seconds'] or 0) / 60:.1f}"
        for row in results["rows"]
    )
    head = config["head"]
    if head == "logistics":
        head = f"a mixture of {config['mixtures']} logistics"
    return (
        f"{provenance.sentence(results)} {config['num_layers']} layers of width "
        f"{config['d_model']}, {config['num_heads']} heads, {config['positions']} "
        f"positions, {head}; {config['steps']:,} updates of {config['batch_size']} "
        f"images, drawn with replacement from {images['training_images']:,} "
        f"({images['name']}). Minutes of training: {minutes}.\n"
    )


def _pixels(results: Mapping[str, Any]) -> int:
    height, width, channels = results["images"]["shape"]
    return height * width * channels


def _compiled(row: Mapping[str, Any]) -> str:
    seconds = [f"{timed['compile_seconds']:.0f}" for timed in row["writing"]]
    return f"{row['model']} {' + '.join(seconds)}"


def _number(value: float | None) -> str:
    """Three digits; a dash where not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
