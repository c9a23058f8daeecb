"""Tables of text: aligned Markdown, or drawn in a terminal."""

import sys
from collections.abc import Sequence
from statistics import fmean


def mean_and_spread(values: Sequence[float], form: str) -> str:
    """The mean over seeds; with several, half the range and their number too.

    >>> mean_and_spread([1.0, 2.0], "{:.1f}")
    '1.5 ± 0.5 (n=2)'
    """
    mean = form.format(fmean(values))
    if len(values) == 1:
        return mean
    spread = (max(values) - min(values)) / 2
    return f"{mean} ± {form.format(spread)} (n={len(values)})"


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that reads well as plain text; all columns but the first go right."""
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    head, *body = (_line(line, widths) for line in lines)
    rule = "|".join(
        ":" + "-" * (width + 1) if i == 0 else "-" * (width + 1) + ":"
        for i, width in enumerate(widths)
    )
    return "\n".join([head, f"|{rule}|", *body]) + "\n"


def parse(text: str) -> list[tuple[list[str], list[list[str]]]]:
    r"""Columns and rows of each table in a text, as `aligned` writes them.

    >>> parse("Words.\n\n" + aligned(["row", "loss"], [["a", "2.5"]]))
    [(['row', 'loss'], [['a', '2.5']])]
    """
    found: list[tuple[list[str], list[list[str]]]] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("| ")]
        if lines:
            head, *body = (
                [cell.strip() for cell in line[1:-1].split(" | ")] for line in lines
            )
            found.append((head, body))
    return found


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn in a terminal, as Markdown elsewhere."""
    if not sys.stdout.isatty():
        print(aligned(columns, rows))
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table()
    for i, name in enumerate(columns):
        drawn.add_column(name, justify="left" if i == 0 else "right")
    for cells in rows:
        drawn.add_row(*cells)
    Console().print(drawn)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |"
