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
from profd.daemon.analyze.steps.steps import Steps, take_steps
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
    "accumulating_loop": "loop counter `_update_step` in Trainer._run_epoch (accumulating_loop.py:",
    "trainer_loop": "loop counter `step` in Trainer._inner_training_loop (trainer_loop.py:",
}
# Nothing tells its epochs: how long they are may take longer to learn than the test lasts.
UNTOLD = {"lightning_loop": "loop counter `batch_idx` in TrainingEpochLoop.advance (lightning_loop.py:"}
WITHOUT = ("no_loop", "retries")
AT_MODULE_LEVEL = "module_loop"
WITH_PAUSES = "nested_loops"
UNREAD = "range_loop"  # recorded once more, with its counter left alone


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
        """Return the rate from the first count to the last, the step that each of them falls into as a fraction."""
        return self.made_per_s(self.counts()[0].at_ns, self.counts()[-1].at_ns)

    def made_per_s(self, from_ns: int, to_ns: int) -> float:
        return self.made_between(from_ns, to_ns) * SECOND_NS / (to_ns - from_ns)

    def made_between(self, from_ns: int, to_ns: int) -> float:
        return self._made_by(to_ns) - self._made_by(from_ns)

    def _made_by(self, at_ns: int) -> float:
        """Return the steps made by then: whole ones alone would be off by up to a step at each end."""
        made = bisect_right(self.stepped_ns, at_ns)
        before_ns, after_ns = self.stepped_ns[made - 1], self.stepped_ns[made]
        return made + (at_ns - before_ns) / (after_ns - before_ns)

    def _points(self, series: int) -> list[PointRow]:
        return self.reader.points(series)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Record all programs at the same time: they wait more than they compute."""
    diaries = tmp_path_factory.mktemp("diaries")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("PROFD_HOME", str(tmp_path_factory.mktemp("h")))
        sessions = {}
        for name in (*LOOPS, *UNTOLD, *WITHOUT, AT_MODULE_LEVEL):
            program = stack.enter_context(running(PROGRAMS / "steploops" / f"{name}.py", diaries / name))
            # Fourteen recordings share two cores: only two of them are about samples.
            rate_hz = 100 if name in {AT_MODULE_LEVEL, WITH_PAUSES} else 10
            sessions[name] = begin_session(program.pid, duration_s=SECONDS, rate_hz=rate_hz)
            if name == UNREAD:
                sessions["unread"] = begin_session(program.pid, duration_s=SECONDS, rate_hz=10, steps=False)
        for session in sessions.values():
            assert session.wait_closed(SECONDS + 60)
        readers = {name: stack.enter_context(RunReader(session.run_file)) for name, session in sessions.items()}
        names = {name: UNREAD if name == "unread" else name for name in readers}
        yield {name: Run(reader, read_diary(diaries / names[name])) for name, reader in readers.items()}


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
@pytest.mark.parametrize("name", sorted(set(LOOPS) - {"tqdm_loop"}))  # not always on the stack
def test_the_last_count_is_that_of_the_end(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert abs(run.counts()[-1].at_ns - run.reader.info.end_ns) < SECOND_NS


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize("name", LOOPS)
def test_the_steps_of_the_run_are_told_with_those_before_the_first_count(runs: dict[str, Run], name: str) -> None:
    steps, info = runs[name].steps(), runs[name].reader.info
    assert steps.count is not None
    assert steps.count_error is not None
    assert abs(steps.count - runs[name].made_between(info.started_ns, info.end_ns)) <= steps.count_error + 1
    assert steps.count_error < 0.15 * steps.count


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize("name", UNTOLD)
def test_the_error_holds_the_truth_where_nothing_tells_the_epochs(runs: dict[str, Run], name: str) -> None:
    steps = runs[name].steps()
    assert steps.per_s is not None
    assert steps.per_s_error is not None
    assert abs(steps.per_s - runs[name].true_rate_per_s()) <= steps.per_s_error


@pytest.mark.requires("tqdm")
def test_steps_at_module_level_are_counted_by_lines(runs: dict[str, Run]) -> None:
    run = runs[AT_MODULE_LEVEL]
    steps, info = run.steps(), run.reader.info
    assert run.counts() == []
    assert steps.source is not None
    assert steps.per_s is not None
    assert steps.source.startswith("cycles of <module> (")
    # Twenty epochs and more, with an evaluation after each.
    assert steps.per_s_error is not None
    true_per_s = run.made_per_s(info.started_ns + SECOND_NS, info.end_ns - SECOND_NS)
    # On a machine that is short of CPU the steps are uneven, and the error is larger, and said to be.
    assert abs(steps.per_s - true_per_s) <= max(0.02 * true_per_s, steps.per_s_error)
    assert steps.per_s_error < 0.1 * true_per_s


@pytest.mark.requires("tqdm")
def test_a_counter_that_is_not_to_be_read_is_not(runs: dict[str, Run]) -> None:
    reader = runs["unread"].reader
    assert reader.info.options["steps"] is False
    assert runs["unread"].counts() == []
    assert [event for event in reader.events() if event.kind == "counter"] == []


@pytest.mark.requires("tqdm")
@pytest.mark.parametrize(("name", "source"), (LOOPS | UNTOLD).items())
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
