"""Rows and verdicts on what a profiler costs a training's steps."""

from __future__ import annotations

import throughput
from steps import Took
from throughput import Round

SAME = (Took(2.0, 1.9), Took(2.0, 1.9))


def test_profilers_are_told_below_or_above_the_limit() -> None:
    wall, cpu = throughput.rows("blocks", [Round(SAME, SAME)] * 10, 1000)
    assert wall.startswith("| blocks, wall | +0.00 % [+0.00, +0.00] | +0.00 % [+0.00, +0.00] | not distinguishable")
    assert wall.endswith("| yes | 2.0000 ms | 2.0000 ms |")
    assert cpu.startswith("| blocks, CPU |")
    assert cpu.endswith("| yes | 1.9000 ms | 1.9000 ms |")
    wall, cpu = throughput.rows("blocks", [Round((Took(2.2, 1.9), SAME[1]), SAME)] * 10, 1000)
    assert "+10.00 % [+10.00, +10.00]" in wall
    assert "| distinguishable" in wall
    assert "| no | 2.0000 ms | 2.2000 ms |" in wall
    assert "+0.00 %" in cpu
    unsure = [Round((Took(2.0 + 0.05 * (number % 2), 1.9), SAME[1]), SAME) for number in range(10)]
    wall, _ = throughput.rows("blocks", unsure, 1000)
    assert "| +1.24 % [+0.3" in wall
    assert "| no |" in wall
    assert Took(1.0, 0.5) + Took(2.0, 0.25) == Took(3.0, 0.75)
