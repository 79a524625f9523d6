"""What a session learns of the findings of its run: what is seen, by whom, and that the looking ends with it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from support.findingruns import HEALTHY, LOAD_IN_PROCESS, step, write_case
from support.synthetic import live_run
from support.waiting import DEADLINE_S

from profd.daemon import sighting
from profd.daemon.analyze.findings import lookout as looking
from profd.daemon.analyze.findings.lookout import EVERY_S
from profd.daemon.sighting import Sighting
from profd.daemon.supervise import lookout

SEEN = Sighting("input-bound-saturated", "input-bound: waits")


def test_a_live_run_says_what_slows_it(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        found = looking.look(run.path)
        assert found is not None
        assert [one.rule for one in found] == ["input-bound-saturated"]
        assert found[0].title.startswith("input-bound: ")


def test_what_is_only_to_be_told_is_no_reason_for_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        monkeypatch.setattr("profd.daemon.analyze.findings.lookout.INFO", "critical")
        assert looking.look(run.path) == ()


@pytest.mark.parametrize("steps", [(HEALTHY,), (step((LOAD_IN_PROCESS, 300)),)])
def test_a_run_that_has_ended_is_looked_at_no_more(tmp_path: Path, steps: tuple[object, ...]) -> None:
    out = io.BytesIO()
    path = write_case(tmp_path / "a.profd", *steps)  # type: ignore[arg-type]
    looking.watch(path, out, lambda _: True)
    assert out.getvalue() == b""


def test_each_look_is_a_line_until_nobody_wants_more(tmp_path: Path) -> None:
    rests: list[float] = []

    def rest(seconds: float) -> bool:
        rests.append(seconds)
        return len(rests) < 3

    out = io.BytesIO()
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        looking.watch(run.path, out, rest)
    lines = out.getvalue().splitlines()
    assert [[one.rule for one in sighting.decode(line)] for line in lines] == [["input-bound-saturated"]] * 2
    assert rests[0] == EVERY_S
    assert min(rests) >= EVERY_S


def test_the_process_ends_with_the_session(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=5) as run:
        ended = subprocess.run(
            lookout.command(run.path), stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_what_a_process_says_is_read_line_by_line() -> None:
    said = (sighting.encode((SEEN,)) + sighting.encode(()) + b"what?\n").decode()
    words = [sys.executable, "-c", f"import sys; sys.stdout.write({said!r}); sys.stdout.flush(); input()"]
    assert [look async for look in lookout.sightings(words)] == [(SEEN,), ()]


async def test_a_process_that_ends_is_no_error() -> None:
    assert [look async for look in lookout.sightings([sys.executable, "-c", "raise SystemExit(3)"])] == []
