"""Asks who leaves the dashboard of a live run what is to become of its recording."""

from __future__ import annotations

from profd.tui.leaving import Leaving
from profd.tui.screens.asking import Choice, ChoiceScreen

_CHOICES = (
    Choice(Leaving.KEEP.value, "keep recording in the background: `profd view` comes back to it", ("k", "q", "b")),
    Choice(Leaving.END.value, "end the recording; the script runs on", ("e",)),
)


class LeavingScreen(ChoiceScreen):
    """The question. The key that led here leaves, and what harms nothing is what it stands for."""

    def __init__(self) -> None:
        super().__init__("Leave", "", _CHOICES)
