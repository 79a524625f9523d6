"""What slows a GPU down."""

from __future__ import annotations

import enum


class Slowdown(enum.IntFlag):
    """Reasons of NVML for a clock below what a device could reach under its load.

    Idleness and clocks that someone chose are none.
    """

    POWER_CAP = 0x4
    HARDWARE = 0x8
    HEAT_BY_DRIVER = 0x20
    HEAT_BY_HARDWARE = 0x40
    POWER_BRAKE = 0x80
    BOARD_LIMIT = 0x200
    RELIABILITY = 0x400
