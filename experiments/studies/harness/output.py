"""What an experiment found, as text: each quantity beside that of the paper, then what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ringmq.experiments.studies.harness.outcome import Outcome, Quantity

HEADS: Final = ("quantity", "from", "theirs", "ours", "", "")
VERDICTS: Final = {True: "as good", False: "less", None: ""}
RIGHT: Final = ("theirs", "ours")


def lines(title: str, outcome: Outcome) -> Iterator[str]:
    """For the terminal."""
    yield title
    cells = [_cells(one) for one in outcome.quantities]
    widths = [max(map(len, column)) for column in zip(HEADS, *cells, strict=True)]
    for row in (HEADS, *cells) if cells else ():
        yield "  " + "  ".join(_padded(row, widths)).rstrip()
    for text in outcome.left_out:
        yield f"  left out: {text}"
    if outcome.interrupted:
        yield "  interrupted: this is what was measured until then"


def _cells(one: Quantity) -> tuple[str, ...]:
    return one.what, one.source, number(one.theirs, one.unit), number(one.ours, one.unit), VERDICTS[one.holds], one.note


def _padded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for head, cell, width in zip(HEADS, row, widths, strict=True):
        yield cell.rjust(width) if head in RIGHT else cell.ljust(width)


def number(value: float | None, unit: str) -> str:
    """With its unit; a dash for none."""
    if value is None:
        return "–"
    digits = f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()
