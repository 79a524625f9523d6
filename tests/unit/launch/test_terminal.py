"""What a terminal can show, by its description."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_ASKED = "from profd.daemon.launch.terminal import can_move_cursor; print(can_move_cursor())"


@pytest.mark.parametrize(
    ("name", "can"),
    [
        ("dumb", False),
        ("unknown", False),
        ("xterm-256color", True),
        ("of-next-year", True),
        ("", True),
    ],
)
def test_a_terminal_shows_a_dashboard_unless_it_cannot_move_its_cursor(
    name: str, can: bool
) -> None:
    """Curses looks at a terminal once in a process."""
    environment = {**os.environ, "TERM": name}
    ended = subprocess.run(
        [sys.executable, "-c", _ASKED], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"{can}\n"
