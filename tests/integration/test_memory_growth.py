"""A program that leaks among ten that do not, all at once, for a minute: the one is found, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from sessions import record, running

from profd.daemon.analyze.memory.growth import growth
from profd.daemon.analyze.summary import summarize

SECONDS = 58
STEP_BYTES = 1e6
STEPS_PER_S = 5


@pytest.mark.timeout(150)
def test_a_leak_of_a_megabyte_a_step_is_found_within_a_minute_and_nothing_else() -> None:
    with running(str(Path("memory") / "leaking.py")) as program:
        reader = record(program.pid, SECONDS, rate_hz=5)
    with reader:
        found = [one for one in growth(reader) if one.series == "rss_bytes"]
        commands = {row.pid: row.command[-1] for row in reader.processes.values()}
        verdicts = {commands[one.pid]: one.verdict for one in found}
        steps = summarize(reader).steps
    assert len(verdicts) == 11
    assert [command for command, verdict in verdicts.items() if verdict == "growing"] == [commands[program.pid]]
    leak = next(one for one in found if one.pid == program.pid)
    assert leak.slope_bytes_per_s == pytest.approx(STEPS_PER_S * STEP_BYTES, rel=0.1)
    assert leak.interval_bytes_per_s is not None
    assert leak.limit is not None
    assert leak.time_to_limit_s is not None
    if steps.source is not None and leak.bytes_per_step is not None:
        assert leak.bytes_per_step == pytest.approx(STEP_BYTES, rel=0.1)
