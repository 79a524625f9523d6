"""Tables of plain text, for stdout: columns padded to their widest cell, two spaces between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from profd.daemon.render.visible import visible


def aligned(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> str:
    """Return a table with a line of heads; the columns named in ``right`` are aligned to the right.

    What is invisible in a cell, or would steer the terminal, is spelled out.
    """
    lines = [list(heads), *(list(map(visible, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def titled(title: str, table: str) -> str:
    """Return a table below its title."""
    return f"{click.style(title, bold=True)}\n{table}"
