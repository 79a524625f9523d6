"""What a person who leaves the dashboard wants to become of the recording."""

from __future__ import annotations

from enum import Enum


class Leaving(Enum):
    """What is to become of the recording."""

    END = "end"
    KEEP = "keep"
