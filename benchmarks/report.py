"""docs/performance.md, from results.json.

python -m benchmarks.report    write the page and draw the figures again
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plot
from benchmarks.results import Results, read, seconds, time_growth
from benchmarks.targets import WAYS, targets

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "performance.md"
HELD = {True: "held", False: "missed", None: "not measured"}

INTRODUCTION = """\
# Performance

Written by `python -m benchmarks` (`make bench`), or by `python -m benchmarks.report`
from `benchmarks/results.json`, which holds every sample.
"""

METHOD = """\
## How it is measured

- Each call blocks until its result is there, or the clock refuses it. Compiling is
  timed apart. All implementations of one length and direction take turns in one run,
  with a product of large matrices among them, by which the machine is judged.
- Causal attention of 8,192 tokens, so 8,192 / N rows and at least one; inputs are
  normal. "forward + backward" is the value and the gradients of all inputs and
  parameters.
- PyTorch runs in a process of its own, which sleeps while others have their turn.
- Temporary memory: for JAX what XLA allots beside arguments and results; for PyTorch
  the growth of the process's peak of resident memory in a call, results included.
- Operations: of softmax 4 b h d N²/2 forward and 2.5 times that backward, of linear
  attention 4 b h d² N and twice that; the other mechanisms count their products over
  visible pairs alike. Exponentials and masks count nothing.
- A call is left out where it would take too long, judged by the length before (unless a
  target is about it), or where its arrays are too large.
"""

REASONS = """\
## What falls short, and why

- Softmax, forward. Most of the time goes into the two products of each tile. A head has
  64 features, and XLA multiplies matrices that narrow at well under the rate of large
  ones; PyTorch's kernel keeps a tile in cache from the first product to the second.
  Other sizes of tiles, a bound in place of the running maximum, and products apart from
  the exponentials gained nothing.
- Synthesizers, once or per batch. What is saved is the computing of weights; their
  product with the values is the same in both, and takes most of what is left.
- Training step. Products of matrices take two thirds of a step, at the rate of the
  large one. Of the rest, much is memory that is touched for the first time: what the
  backward pass keeps of each layer. On Linux the environment variable
  `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` makes that cheaper, for every library here;
  the run doesn't set it.
"""


def page(results: Results) -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        _scale(results),
        "## Targets\n",
        _targets(results),
        "## Time\n",
        "![time over N](figures/performance-time.png)\n",
        "Milliseconds a call, median of all rounds.\n",
        *(_lengths(results, way, _milliseconds) for way in WAYS),
        "## Memory\n",
        "![memory over N](figures/performance-memory.png)\n",
        "Temporary megabytes of a call.\n",
        *(_lengths(results, way, _megabytes) for way in WAYS),
        "## Rate\n",
        "GFLOP/s, and the share of the rate of the product of matrices in the same "
        "turns.\n",
        *(_lengths(results, way, lambda row: _rate(results, row)) for way in WAYS),
        "## Training step\n",
        _training(results.get("training", {})),
        "## Decoding\n",
        _decoding(results.get("decoding", ())),
        METHOD,
        "## Left out\n",
        _left_out(results),
    ]
    return "\n".join(parts)


def _scale(results: Results) -> str:
    device, versions = results["device"], results["versions"]
    config = results["config"]
    shown = ", ".join(f"{name} {versions[name]}" for name in versions)
    return (
        f"`{results['command']}` at commit {results['commit'] or 'unknown'}: "
        f"{device['kind']}, {device['cores']} cores, {results['seconds'] / 60:.0f} "
        f"minutes. {config['rounds']} rounds, {config['dtype']}, {config['heads']} "
        f"heads x {config['width']}. {shown}.\n"
    )


def _targets(results: Results) -> str:
    found = targets(results)
    held = sum(target.held is True for target in found)
    rows = [(t.what, t.target, t.measured, HELD[t.held]) for t in found]
    table = _table(("what", "target", "measured", ""), rows)
    measured = sum(target.held is not None for target in found)
    said = f"{held} of {measured} that were measured held. Ratios are of medians."
    missed = measured > held
    return f"{said}\n\n{table}" + (f"\n{REASONS}" if missed else "")


def _lengths(results: Results, direction: str, show: Any) -> str:
    """A table of all cases over the lengths."""
    rows = [row for row in results.get("sweep", ()) if row["direction"] == direction]
    lengths = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["name"] for row in rows))
    cells = {(row["name"], row["n"]): show(row) for row in rows}
    timed = show is _milliseconds
    head = (WAYS[direction], *(f"{n:,}" for n in lengths), *(("growth",) * timed))
    body = []
    for name in names:
        line = [name, *(cells[name, n] for n in lengths)]
        if timed:
            slope = time_growth(results, name, direction)
            line.append("-" if slope is None or name == "matmul" else f"{slope:.2f}")
        if set(line[1:]) != {"-"}:
            body.append(line)
    return _table(head, body)


def _milliseconds(row: Any) -> str:
    value = seconds(row)
    return "-" if value is None else _short(1e3 * value)


def _megabytes(row: Any) -> str:
    value = row.get("temporary_bytes")
    return "-" if value is None else _short(value / 1e6)


def _rate(results: Results, row: Any) -> str:
    value = seconds(row)
    if value is None or not row.get("flops"):
        return "-"
    (matmul,) = (
        other
        for other in results.get("sweep", ())
        if other["name"] == "matmul"
        and (other["n"], other["direction"]) == (row["n"], row["direction"])
    )
    rate, best = row["flops"] / value, matmul["flops"] / seconds(matmul)
    if row is matmul:
        return f"{rate / 1e9:.0f}"
    return f"{rate / 1e9:.0f} ({rate / best:.0%})"


def _training(training: Results) -> str:
    if not training:
        return "Not measured.\n"
    size, tokens = training["size"], training["tokens"]
    rows = [
        (name, f"{tokens / median(s):,.0f}", f"{tokens / min(s):,.0f}")
        for name, s in training["samples"].items()
    ]
    count = training["models"]["attn_jax"]["parameters"]
    text = (
        f"A decoder of {size['num_layers']} layers, width {size['d_model']}, "
        f"{size['num_heads']} heads, d_ff {size['d_ff']}, {count:,} parameters; AdamW "
        f"with a clipped gradient, {size['batch']} x {size['length']} tokens a step. "
        "PyTorch trains the same parameters, from the same loss.\n\n"
    )
    return text + _table(("", "tokens/s, median", "best"), rows)


def _decoding(rows: Sequence[Any]) -> str:
    cells = [
        (r["name"], f"{r['position']:,}", f"{1e3 * median(r['samples']):.3f}")
        for r in rows
    ]
    return _table(("one layer, batch 1", "position", "ms a token"), cells)


def _left_out(results: Results) -> str:
    lines = [
        f"- {row['name']}, {WAYS[row['direction']]}, N = {row['n']:,}: "
        f"{row['left_out']}"
        for row in results.get("sweep", ())
        if "left_out" in row
    ]
    return "\n".join(lines or ["Nothing."]) + "\n"


def _short(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = [":--", *["--:"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    found = read(SOURCE)
    plot.draw(found, ROOT / "docs" / "figures")
    PAGE.write_text(page(found), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
