"""The outcome of an experiment as text: each quantity beside the paper's, then the restrictions of the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ringmq.experiments.studies.harness.outcome import Outcome, Quantity

HEADS: Final = ("quantity", "from", "theirs", "ours", "", "")
VERDICTS: Final = {True: "as good", False: "less", None: ""}
RIGHT: Final = ("theirs", "ours")


def lines(title: str, outcome: Outcome) -> Iterator[str]:
    """The lines for the terminal."""
    yield title
    cells = [_cells(quantity) for quantity in outcome.quantities]
    widths = [max(map(len, column)) for column in zip(HEADS, *cells, strict=True)]
    for row in (HEADS, *cells) if cells else ():
        yield "  " + "  ".join(_padded(row, widths)).rstrip()
    for text in outcome.left_out:
        yield f"  left out: {text}"
    if outcome.interrupted:
        yield "  interrupted: these are the results so far"


def _cells(quantity: Quantity) -> tuple[str, ...]:
    theirs, ours = number(quantity.theirs, quantity.unit), number(quantity.ours, quantity.unit)
    return quantity.what, quantity.source, theirs, ours, VERDICTS[quantity.holds], quantity.note


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for head, cell, width in zip(HEADS, row, widths, strict=True):
        yield cell.rjust(width) if head in RIGHT else cell.ljust(width)


def number(value: float | None, unit: str) -> str:
    """A value with its unit; a dash for None."""
    if value is None:
        return "–"
    digits = f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()
