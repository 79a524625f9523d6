"""How an errand went: messages that are posted to the screen which sent it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from profd.daemon.errors import ProfdError, SessionFailed

if TYPE_CHECKING:
    from profd.daemon.supervise.treedump import DumpedProcess, MergedStack


class ErrandDone(Message):
    """It was done; ``text`` says what came of it."""

    def __init__(self, text: str, title: str = "") -> None:
        super().__init__()
        self.text, self.title = text, title


class ErrandFailed(Message):
    """It was not done."""

    def __init__(self, error: ProfdError, title: str) -> None:
        super().__init__()
        self.error, self.title = error, title


class WindowRefused(Message):
    """There is no window; where ``may_inject``, there would be one if the profiler were started inside the process."""

    def __init__(self, error: SessionFailed, *, may_inject: bool) -> None:
        super().__init__()
        self.error, self.may_inject = error, may_inject


class StacksDumped(Message):
    """The stacks of the tree at one moment."""

    def __init__(self, dumped: Sequence[DumpedProcess], stacks: Sequence[MergedStack]) -> None:
        super().__init__()
        self.dumped, self.stacks = dumped, stacks


class ReportWritten(Message):
    """The report lies at ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


class ReportFailed(Message):
    """There is no report."""

    def __init__(self, error: ProfdError) -> None:
        super().__init__()
        self.error = error
