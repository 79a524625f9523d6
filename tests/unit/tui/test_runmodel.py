"""What the dashboard itself takes of a core, by a clock and a CPU time that are made up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import synthetic
from support.present import there

import profd.tui.runmodel as runmodel_module
from profd.daemon.analyze.profile import hot_functions, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.render.summary import summarize
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.timerange import TimeRange
from profd.tui.runmodel import OwnCost, RunModel
from profd.tui.snapshot import Snapshot
from profd.tui.view import View


class Spending:
    """A process that spends a part of the time."""

    def __init__(self) -> None:
        self.now_s = self.spent_s = 0.0

    def go_on(self, seconds: float, cores: float) -> None:
        self.now_s += seconds
        self.spent_s += seconds * cores


def test_cost_is_that_of_the_last_seconds_alone_nothing_at_first_and_after_a_pause_that_of_the_pause() -> (
    None
):
    spending = Spending()
    cost = OwnCost(lambda: spending.now_s, lambda: spending.spent_s)
    spending.go_on(0.5, cores=1.0)
    assert cost.cores() is None
    spending.go_on(100.0, cores=0.01)
    assert cost.cores() == pytest.approx(0.01)
    for seconds, cores in ((10, 1.0), (11, 0.03)):
        for _ in range(seconds):
            spending.go_on(1.0, cores)
            said = cost.cores()
        assert said == pytest.approx(cores)


FUNCTIONS = View(tab="hot")
RECENT = View(span_ns=30 * SECOND_NS, tab="hot")
ALL = View(scope=Selection(), tab="hot")


def model_of(reader: RunReader) -> RunModel:
    model = RunModel(reader)
    while model.catch_up():
        pass
    return model


def assert_alike(one: Snapshot, other: Snapshot) -> None:
    """Compare all but the errors of shares exactly: changes are weighed by the samples around them,
    batch by batch.
    """
    without = []
    for mine, theirs in zip(one.functions, other.functions, strict=True):
        assert (mine.self_error, mine.total_error) == pytest.approx(
            (theirs.self_error, theirs.total_error), rel=0.1
        )
        without.append(
            msgspec.structs.replace(
                mine, self_error=theirs.self_error, total_error=theirs.total_error
            )
        )
    assert msgspec.structs.replace(one, functions=tuple(without)) == other


def test_a_snapshot_has_what_the_analysis_has_of_its_scope_its_time_and_its_processes(
    ended: Path,
) -> None:
    with RunReader(ended) as reader:
        snapshot = model_of(reader).snapshot(FUNCTIONS)
        assert list(snapshot.functions) == hot_functions(reader, take_profile(reader, MAIN_THREADS))
        assert snapshot.samples == 4000
        model = model_of(reader)
        everything = model.snapshot(ALL)
        worker = model.snapshot(View(scope=Selection(processes=frozenset({2})), tab="hot"))
        # The main process's two threads and one of each worker.
        assert everything.samples == 4 * 4000
        assert list(everything.functions) == hot_functions(
            reader, take_profile(reader, Selection())
        )
        assert worker.samples == 4000
        assert worker.functions[0].function == "elastic_deform"
        assert worker.scope_name == "worker 1 · pid 4243"
        assert model.snapshot(FUNCTIONS).samples == 4000
        snapshot = model_of(reader).snapshot(RECENT)
        selection = msgspec.structs.replace(
            MAIN_THREADS, from_ns=reader.info.end_ns - 30 * SECOND_NS
        )
        assert list(snapshot.functions) == hot_functions(reader, take_profile(reader, selection))
        assert snapshot.samples == 3000
        assert snapshot.time.from_ns == reader.info.end_ns - 30 * SECOND_NS
    with RunReader(ended) as reader:
        verdict = there(model_of(reader).snapshot(FUNCTIONS).verdict)
    assert verdict.phase == "data wait"
    assert verdict.share == pytest.approx(0.4)
    line = there(verdict.line)
    assert (line.module_path, line.line) == ("train.py", 58)
    assert line.source == "for images, labels in loader:"


@pytest.mark.parametrize("from_s", [0, 12])
def test_a_process_has_in_a_range_the_means_of_the_time_that_it_lived(
    tmp_path: Path, from_s: int
) -> None:
    ended = records.ProcessEnded(synthetic.worker(2), synthetic.STARTED_NS + 15 * SECOND_NS)
    chosen = TimeRange(
        synthetic.STARTED_NS + from_s * SECOND_NS, synthetic.STARTED_NS + 20 * SECOND_NS
    )
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=40, also=[ended])) as reader:
        shown = model_of(reader).snapshot(View(tab="processes", chosen=chosen)).processes
        expected = summarize(reader, Selection(chosen.from_ns, chosen.to_ns)).processes
    found = {one.row.pid: (one.cpu_cores, one.rss_bytes) for one in shown}
    assert found == {one.pid: pytest.approx((one.cpu_cores, one.rss_bytes)) for one in expected}
    assert [cores for cores, _ in found.values()] == pytest.approx([0.6, 0.97, 0.97])


def test_what_grew_bit_by_bit_is_what_is_read_at_once(tmp_path: Path) -> None:
    with synthetic.live_run(tmp_path / "a.profd", seconds=1) as run, RunReader(run.path) as reader:
        growing = RunModel(reader)
        for _ in range(4):
            while growing.catch_up():
                pass
            growing.snapshot(FUNCTIONS)
            run.advance(2)
        while growing.catch_up():
            pass
        with RunReader(run.path) as other:
            at_once = model_of(other)
            for view in (
                FUNCTIONS,
                RECENT,
                ALL,
                View(scope=Selection(processes=frozenset({2})), tab="hot"),
            ):
                assert_alike(growing.snapshot(view), at_once.snapshot(view))


def test_a_long_run_is_read_in_batches_that_say_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runmodel_module, "BATCH_RECORDINGS", 128)
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=100)) as reader:
        model = RunModel(reader)
        shares = []
        while model.catch_up():
            shares.append(model.snapshot(FUNCTIONS).read_share)
        whole = model.snapshot(FUNCTIONS)
    assert shares == sorted(shares)
    assert all(0 < share < 1 for share in shares)
    assert len(shares) >= 2
    assert (whole.read_share, whole.samples) == (1, 10_000)
