"""results.json: everything that the table and the figures are made from."""

from typing import Any

from experiments.common import provenance
from experiments.compare.config import CompareConfig
from experiments.compare.rows import Row
from experiments.compare.text import UNIFORM_BITS, Text

OF_A_ROW = ("parameters", "d_ff", "forward_flops_per_token", "memory_bytes")
OF_A_RUN = (
    "seed",
    "stages",
    "steps",
    "validation_bits_per_byte",
    "curve",
    "tokens_per_second",
    "training_seconds",
    "compile_seconds",
    "sample",
)


def assemble(
    rows: list[tuple[Row, list[dict[str, Any]]]],
    config: CompareConfig,
    text: Text,
) -> dict[str, Any]:
    """The results of rows whose runs, one a seed, are all done."""
    corpus, numbers = text.corpus, [run for _, runs in rows for run in runs]
    return {
        "experiment": "compare",
        "preset": config.preset,
        **provenance.joined(numbers),
        "config": {
            **shared_config(config, text),
            "steps": config.steps,
            "seeds": list(range(config.seeds)),
        },
        "corpus": {
            "name": provenance.relative(corpus.name),
            "fingerprint": corpus.fingerprint,
            "split": corpus.split,
            "files": corpus.num_files,
            "training_bytes": len(corpus.train),
            "validation_bytes": len(text.validation),
        },
        "reference": {
            "uniform_bits_per_byte": UNIFORM_BITS,
            "byte_pairs_bits_per_byte": text.bits_of_byte_pairs(),
        },
        "seconds": _seconds(numbers),
        "rows": [_row(row, runs) for row, runs in rows],
        "prompt": text.decode(text.prompt()),
    }


def shared_config(config: CompareConfig, text: Text) -> dict[str, Any]:
    """What all models of a work directory have in common, and may not change."""
    return {**config.shared(), "corpus_fingerprint": text.corpus.fingerprint}


def _seconds(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Training and compiling of all runs; seeds after the first compile nothing."""
    training = sum(run["training_seconds"] or 0 for run in runs)
    compiling = sum(run["compile_seconds"] for run in runs if run["seed"] == 0)
    return {"training": round(training, 1), "compiling": round(compiling, 1)}


def _row(row: Row, runs: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [run["tokens_per_second"] for run in runs if run["tokens_per_second"]]
    return {
        "model": row.name,
        **{name: runs[0][name] for name in OF_A_ROW},
        # The first seed compiles; the others find its program.
        "compile_seconds": runs[0]["compile_seconds"],
        "tokens_per_second": sum(rates) / len(rates) if rates else None,
        "runs": [{name: run.get(name) for name in OF_A_RUN} for run in runs],
    }
