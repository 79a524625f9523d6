"""Where a script stands is found whatever other processes do meanwhile."""

from __future__ import annotations

import os

import pytest

from profd.daemon import processes
from profd.daemon.launch.placement import find_placement


@pytest.mark.parametrize("asks", ["getpgid", "getsid"])
def test_a_process_that_ends_while_it_is_asked_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    real, ending, lasting = getattr(os, asks), 1, [os.getppid(), os.getpid()]
    monkeypatch.setattr(processes, "pids", lambda: lasting)
    without = find_placement()

    def end(pid: int) -> int:
        if pid == ending:
            raise ProcessLookupError
        return int(real(pid))

    monkeypatch.setattr(os, asks, end)
    monkeypatch.setattr(processes, "pids", lambda: [ending, *lasting])
    assert find_placement().leads is without.leads
