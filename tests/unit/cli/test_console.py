"""How wide lines may be: as the terminal, within bounds, and always the same in a pipe."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from profd.cli.console import line_cells


@pytest.mark.parametrize(
    ("columns", "cells"), [(80, 80), (132, 132), (300, 200), (20, 40), (0, 100)]
)
def test_lines_are_as_wide_as_the_terminal(columns: int, cells: int) -> None:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        assert line_cells(terminal) == cells
    os.close(master)


def test_lines_in_a_pipe_have_one_width() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as pipe:
        assert line_cells(pipe) == 100
    os.close(read_end)
