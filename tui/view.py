"""What the person has chosen to look at: passed to the feed, and back inside every snapshot that answers it."""

from __future__ import annotations

from enum import Enum

import msgspec

from profd.daemon.clock import SECOND_NS

RECENT_NS = 30 * SECOND_NS


class Window(Enum):
    """The time that tables and shares cover."""

    WHOLE = "whole run"
    RECENT = "last 30 s"


class ScopeKind(Enum):
    """Whose samples the hot functions count."""

    MAIN = "main threads"
    ALL = "all threads"
    PROCESS = "one process"


class Scope(msgspec.Struct, frozen=True):
    """Whose samples count; ``process`` is the id of a row (not a PID), given for PROCESS alone."""

    kind: ScopeKind = ScopeKind.MAIN
    process: int | None = None


class View(msgspec.Struct, frozen=True):
    """A choice of samples, and the room there is to show them in.

    ``columns`` is the width of the timeline's strips in cells.
    """

    scope: Scope = Scope()
    window: Window = Window.WHOLE
    columns: int = 60


class OutputView(msgspec.Struct, frozen=True):
    """The room for the script's own output; ``is_shown`` is False while another tab is open.

    While somebody types to the script its echo is looked for more often.
    """

    columns: int = 80
    lines: int = 24
    is_shown: bool = False
    is_typing: bool = False
