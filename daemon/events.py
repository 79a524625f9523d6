"""The kinds of events of a run, and how the dashboard shows them."""

from __future__ import annotations

from enum import Enum


class Sign(Enum):
    """A sign on the timeline: a glyph, and its style."""

    WINDOW = "◆", "accent"
    SAVE = "▲", "dim"
    NOTE = "●", "good"
    TROUBLE = "!", "bad"
    CHANGE = "▸", "dim"


class EventKind(str, Enum):
    """The kinds of events; docs/file-format.md says what each means.

    ``sign`` marks the kind on the timeline, None if it has no mark there. ``style`` is that of the
    kind in the list of events; "bad" are errors.
    """

    sign: Sign | None
    style: str

    STARTED = "started", None, "good"
    ENDED = "ended"
    EXEC = "exec", Sign.CHANGE
    LOADED = "loaded"
    STEP_SOURCE = "counter"  # what counts the steps from then on
    STEPS_LOST = "uncounted", Sign.NOTE  # nothing counts them from then on
    LOOP_LEFT = "loop left"  # the training may have ended
    GPU = "gpu", Sign.TROUBLE
    WINDOW = "window"  # windows themselves are marked
    HANG = "hang", Sign.TROUBLE, "warn"
    FINDING = "finding", Sign.CHANGE
    LOSS = "loss", Sign.TROUBLE, "warn"
    GAP = "gap", Sign.TROUBLE, "warn"
    UNREAD = "unread", Sign.TROUBLE, "bad"  # a process is not read
    WALL_JUMP = "wall-jump", Sign.CHANGE, "warn"
    OOM = "oom", Sign.TROUBLE
    ERROR = "error", Sign.TROUBLE, "bad"
    NOTE = "note", Sign.NOTE
    MARK = "mark", Sign.NOTE
    RATE = "rate"  # profd's own sampling

    def __new__(cls, value: str, sign: Sign | None = None, style: str = "dim") -> EventKind:
        kind = str.__new__(cls, value)
        kind._value_, kind.sign, kind.style = value, sign, style
        return kind

    @classmethod
    def _missing_(cls, value: object) -> EventKind:
        """Take a kind that another version of profd wrote."""
        kind = str.__new__(cls, value)
        kind._name_ = kind._value_ = str(kind)
        kind.sign, kind.style = None, "dim"
        return kind

    __str__ = str.__str__


STEP_CHANGES = (EventKind.STEP_SOURCE, EventKind.STEPS_LOST, EventKind.EXEC)
"""The events from which on steps are counted, or not: another program has its own steps."""

OPTIMIZER_STEPS = "the optimizer's own count"
"""How the text of a ``STEP_SOURCE`` begins if an optimizer counts its own steps."""
