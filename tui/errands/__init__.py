"""What the dashboard has done for the person, by the session or by itself: to be called in a thread.

Each errand gives back a message, one of ``outcomes``, that says how it went; none raises what a person or a machine can
cause.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.message import Message

Errand = Callable[[], Message]
