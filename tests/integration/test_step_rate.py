"""Steps of unmodified programs, read from outside, against the diaries that they keep."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sessions import PROGRAMS, begin_session, running

from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.analyze.steps import Steps, take_steps
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import PointRow

SECONDS = 36
LOOPS = {
    "enumerate_loop": "loop counter `i` in train (enumerate_loop.py:",
    "while_loop": "loop counter `step` in train (while_loop.py:",
    "range_loop": "loop counter `_step` in train (range_loop.py:",
    "tqdm_loop": "loop counter `n` in tqdm.__iter__ (tqdm/std.py:",
    "nested_loops": "loop counter `_i` in train (nested_loops.py:",
    "trainer_loop": "loop counter `step` in Trainer._inner_training_loop (trainer_loop.py:",
}
WITHOUT = ("no_loop", "retries")


class Run(NamedTuple):
    """A recorded run, and the times of the steps that it really made."""

    reader: RunReader
    stepped_ns: list[int]

    def steps(self) -> Steps:
        return take_steps(self.reader, MAIN_THREADS, PhaseIndex(self.reader))

    def counts(self) -> list[PointRow]:
        return [
            point for row in self.reader.series.values() if row.name == "step_count" for point in self._points(row.id)
        ]

    def true_rate_per_s(self) -> float:
        first, last = self.counts()[0].at_ns, self.counts()[-1].at_ns
        made = bisect_right(self.stepped_ns, last) - bisect_right(self.stepped_ns, first)
        return made * SECOND_NS / (last - first)

    def _points(self, series: int) -> list[PointRow]:
        return self.reader.points(series)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Record all programs at the same time: they wait more than they compute."""
    diaries = tmp_path_factory.mktemp("diaries")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("PROFD_HOME", str(tmp_path_factory.mktemp("h")))
        sessions = {}
        for name in (*LOOPS, *WITHOUT):
            program = stack.enter_context(running(PROGRAMS / "steploops" / f"{name}.py", diaries / name))
            sessions[name] = begin_session(program.pid, duration_s=SECONDS)
        for session in sessions.values():
            assert session.wait_closed(SECONDS + 60)
        readers = {name: stack.enter_context(RunReader(session.run_file)) for name, session in sessions.items()}
        yield {name: Run(reader, read_diary(diaries / name)) for name, reader in readers.items()}


def read_diary(path: Path) -> list[int]:
    """Return the times of the steps; the last line may be written at this moment."""
    return [int(line.split()[0]) for line in path.read_text().splitlines()[:-1]]


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize("name", LOOPS)
def test_the_step_rate_is_that_of_the_script(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    counts, steps = run.counts(), run.steps()
    assert (counts[-1].at_ns - counts[0].at_ns) / SECOND_NS > 0.6 * SECONDS
    assert steps.per_s == pytest.approx(run.true_rate_per_s(), rel=0.02)


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize("name", LOOPS)
def test_the_error_of_the_rate_holds_the_truth_and_says_something(runs: dict[str, Run], name: str) -> None:
    steps = runs[name].steps()
    assert steps.per_s is not None
    assert steps.per_s_error is not None
    assert abs(steps.per_s - runs[name].true_rate_per_s()) <= steps.per_s_error
    assert steps.per_s_error < 0.15 * steps.per_s


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize(("name", "source"), LOOPS.items())
def test_the_counter_is_named(runs: dict[str, Run], name: str, source: str) -> None:
    found = runs[name].steps().source
    assert found is not None
    assert found.startswith(source)


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize("name", WITHOUT)
def test_a_program_that_does_not_step_has_no_counter(runs: dict[str, Run], name: str) -> None:
    assert runs[name].counts() == []
    assert runs[name].steps() == Steps()


@pytest.mark.requires("tqdm")
def test_of_all_variables_only_the_counter_is_in_the_file(runs: dict[str, Run]) -> None:
    reader = runs["trainer_loop"].reader
    named = [event.text for event in reader.events() if event.kind == "counter"]
    assert len(named) == 1
    content = b"".join(path.read_bytes() for path in reader.path.parent.glob(f"{reader.path.name}*"))
    for name in (b"batch_size", b"steps_trained_in_current_epoch", b"epochs_trained"):
        assert name not in _without_sources(content, reader)


def _without_sources(content: bytes, reader: RunReader) -> bytes:
    """Return a file without the source lines of its frames, which name variables of course."""
    for frame in reader.frames.values():
        if frame.source:
            content = content.replace(frame.source.encode(), b"")
    return content
