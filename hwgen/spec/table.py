"""Aligned columns of plain text: the same bytes on a terminal, in a pipe and in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Cell = str | int | float


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Columns two spaces apart; numbers to the right, with thousands separated.

    A `float` is shown with three decimals.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [
        bool(rows) and all(not isinstance(row[i], str) or row[i] in ("", "-") for row in rows)
        for i in range(len(header))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *map(line, texts)])


def counted(numbers: Mapping[str, int]) -> str:
    """Names with their numbers in one line, sorted."""
    return ", ".join(f"{name} {n:,}" for name, n in sorted(numbers.items()))


def _text(cell: Cell) -> str:
    match cell:
        case str():
            return cell
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:.3f}"
