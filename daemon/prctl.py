"""What a process settles with the kernel about itself."""

from __future__ import annotations

import ctypes
import enum


class Setting(enum.IntEnum):
    """The settings of ``prctl`` that profd changes."""

    SIGNAL_AT_PARENTS_DEATH = 1
    DUMPS_CORE = 4
    NO_NEW_PRIVILEGES = 38
    PTRACER = 0x59616D61


def settle(setting: Setting, value: int) -> None:
    """Change a setting of this process; the kernel may refuse."""
    ctypes.CDLL(None).prctl(setting, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)
