"""What the benchmark with Holistic Trace Analysis takes for a fault of the exported folder."""

from __future__ import annotations

import msgspec
import pytest
from holistic import Reading, faults_of

OWN = Reading([0], [2, 3], {"0": 600}, {"get_profiler_steps": "list", "get_idle": "ValueError: case [93, -1.0]"})
OURS = Reading([0], [0, 1], {"0": 622}, {"get_profiler_steps": "list", "get_idle": "ValueError: case [36, 0.0]"})


def test_same_results_and_the_same_errors_are_no_fault() -> None:
    assert faults_of(OURS, OWN) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ranks": [1]}, "ranks [1], not [0]"),
        ({"iterations": [0]}, "1 iterations of 3 steps"),
        ({"operators": {"0": 0}}, "no operators"),
        ({"calls": {**OURS.calls, "get_idle": "KeyError: 'rank'"}}, "get_idle: KeyError: 'rank', not ValueError: case"),
    ],
)
def test_what_torch_does_better_is_a_fault(change: dict[str, object], fault: str) -> None:
    (found,) = faults_of(msgspec.structs.replace(OURS, **change), OWN)
    assert found.startswith(fault)
