"""The answers of a GPU driver, as they are.

Stamps are those of the driver's own clock. A question without an answer raises
``NoDriverAnswer``. Whoever asks maps, adds up, falls back and asks again.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Why(enum.Enum):
    """Why there is no answer, which decides when to ask again."""

    LACKING = "the device or its driver cannot tell"
    REFUSED = "not now: a right or a mode may change within a run"
    EMPTY = "the driver has no value"
    FAILED = "an error that may be gone next time"
    LOST = "the device does not answer any more"


class NoDriverAnswer(Exception):
    """A question to which the driver gave no answer; the message has its words."""

    def __init__(self, why: Why, words: str) -> None:
        super().__init__(words)
        self.why = why


class BusySample(NamedTuple):
    """The share of the time since the sample before in which a GPU was busy.

    ``stamp_us`` counts microseconds by the driver's clock, whichever that is.
    """

    stamp_us: int
    share: float


class DeviceMemory(NamedTuple):
    """The bytes of a device in use, without those that the driver reserves, and all that it has."""

    used_bytes: int
    total_bytes: int


class DriverCall(NamedTuple):
    """A call into the driver that has not returned: which, and since when."""

    function: str
    since_ns: int


class DriverEvent(NamedTuple):
    """An error that the driver reports by itself.

    It has the device's name, and the Xid, which is None for uncorrectable memory.
    """

    device: str
    xid: int | None
