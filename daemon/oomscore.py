"""Whom the kernel takes first when memory ends: profd before the training, but never who holds the training."""

from __future__ import annotations

import contextlib
from pathlib import Path

_MOST = 1000


def volunteer(points: int = 500) -> None:
    """Have the kernel take this process, and what it starts, before those beside it; refused rights change nothing."""
    with contextlib.suppress(OSError, ValueError):
        _file("self").write_text(str(min(_MOST, int(_file("self").read_text()) + points)))


def spare(pid: int, like: int) -> None:
    """Have the kernel take a process no sooner than another one; refused rights change nothing."""
    with contextlib.suppress(OSError):
        _file(pid).write_text(_file(like).read_text())


def _file(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/oom_score_adj")
