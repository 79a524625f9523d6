"""Whether running Pythons collect garbage, of each version that is here, and the share of time that
this becomes.
"""

from __future__ import annotations

import pytest
from support.interpreters import READY, VERSIONS, python, standing
from support.synthetic import MAIN

from profd.daemon.interpreter.frames import open_interpreter
from profd.daemon.interpreter.garbage import Collector
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.store.records import COLLECTING, Point

# A callback of the collector runs while it is at work.
COLLECTS = f"""
import gc
{READY}
gc.disable()
ready()
gc.callbacks.append(lambda phase, about: phase == "start" and ready())
gc.collect()
gc.callbacks.clear()
ready()
"""


def opened(pid: int) -> Collector:
    return Collector(open_interpreter(pid), MAIN)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_collector_is_seen_at_work(version: str) -> None:
    with standing(COLLECTS, python(version)) as program:
        if version in ("3.8", "3.14", "3.15"):
            with pytest.raises(Unreadable, match="is not known"):
                opened(program.pid)
            return
        collector = opened(program.pid)
        seen = [collector.look()]
        for _ in range(2):
            program.go_on()
            seen.append(collector.look())
    assert seen == [False, True, False]


def test_what_is_no_collector_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.daemon.interpreter.garbage._YOUNGEST", 104)
    with standing(f"{READY}\nready()") as program, pytest.raises(Unreadable, match="is not where"):
        opened(program.pid)


def test_looks_become_a_share() -> None:
    with standing(f"{READY}\nready()") as program:
        points = opened(program.pid).points([True, False, False, False], 1.0)
    assert points == (Point(COLLECTING, 0.25, MAIN),)
