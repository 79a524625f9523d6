"""Python's view of a run says what the commands say of it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from support import hostiletexts, rankrun, synthetic
from support.commandline import CommandLine
from support.completerun import write_complete_run
from support.noderuns import JOB, write_folder
from support.synthetic import MAIN, PHASE_SHARES, RUN_ID, STARTED_NS, live_run

import profd
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import phase_shares, take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.api.run import Run
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import NoSuchRun, UsageError
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import RunEnded


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_complete_run(tmp_path / "a.profd")


def test_all_names_that_are_promised_are_there_and_no_others() -> None:
    assert {name: getattr(profd, name).__name__ for name in profd.__all__} == {
        name: name for name in profd.__all__
    }
    with pytest.raises(AttributeError, match="nonsense"):
        profd.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ({}, ()),
        ({"from_": 10, "to": "30"}, ("--from", 10, "--to", 30)),
        ({"phase": "forward"}, ("--phase", "forward")),
        ({"gpu_idle": True}, ("--gpu-idle",)),
        ({"gpu_idle": 50, "process": MAIN.pid}, ("--gpu-idle=50", "--process", MAIN.pid)),
    ],
)
def test_a_summary_is_that_of_the_command_for_the_same_selection(
    path: Path, command: CommandLine, words: profd.Selectors, options: tuple[object, ...]
) -> None:
    with profd.open_run(path) as run:
        said = json.loads(command("summary", path, "--json", *options))
        assert json.loads(msgspec.json.encode(run.summary(**words))) == said


def test_properties_are_those_of_the_whole_run(path: Path) -> None:
    with profd.open_run(path) as run:
        whole = run.summary()
        assert (*run.findings,) == whole.findings
        assert {one.name: (one.share, one.error) for one in run.phases} == {
            name: (share, whole.phase_errors[name]) for name, share in whole.phases.items()
        }
        assert tuple(one.line for one in run.phases if one.line) == whole.phase_lines
        assert (run.steps, (*run.processes,)) == (whole.steps, whole.processes)
        assert (run.path, run.info.id, run.info.state, run.live) == (path, RUN_ID, "ended", None)
        assert repr(run) == f"<Run {RUN_ID}, ended, 1 min 12 s>"


def test_stacks_add_up_to_the_time_of_a_selection_and_its_phases(path: Path) -> None:
    with profd.open_run(path) as run:
        stacks = run.stacks(from_=10, to=30)
        assert sum(one.seconds for one in stacks) == pytest.approx(20)
        spent: defaultdict[str, float] = defaultdict(float)
        for one in stacks:
            spent[one.phase] += one.seconds / 20
            assert one.frames[-1].startswith(one.function)
        assert spent == pytest.approx(PHASE_SHARES)
        assert [one.seconds for one in stacks] == sorted(
            (one.seconds for one in stacks), reverse=True
        )
        (forward,) = {one.phase for one in run.stacks(phase="forward")}
        assert forward == "forward"
        everybody = {(one.pid, one.role, one.thread) for one in run.stacks(main_threads=False)}
        assert {one.thread for one in stacks} == {"MainThread"}
        assert len(everybody) == 4  # main, pin memory, two workers


def test_stacks_of_processes_that_were_read_in_turns_stand_for_all_of_their_lives(
    tmp_path: Path,
) -> None:
    thread = (MAIN.pid, "MainThread", True, ((synthetic.BACKWARD, 1000),))
    parts = [
        synthetic.recording(MAIN, STARTED_NS + second * SECOND_NS, (thread,)) for second in (0, 2)
    ]
    ended = RunEnded(STARTED_NS + 3 * SECOND_NS, "target-exited", 0)
    path = synthetic.write_records(tmp_path / "a.profd", [synthetic.main_process(), *parts, ended])
    with profd.open_run(path) as run, RunReader(path) as reader:
        (stack,) = run.stacks()
        profile = take_profile(reader, Selection(main_threads=True))
        assert stack.seconds == pytest.approx(profile.total_ns / SECOND_NS)
        assert stack.seconds == pytest.approx(3)
        assert phase_shares(profile, PhaseIndex(reader)) == {stack.phase: 1.0}


def test_lines_are_the_users_with_their_phases_and_shares(path: Path) -> None:
    with profd.open_run(path) as run:
        lines = run.lines()
        shares = [line.total_share for line in lines]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1)
        assert not any(line.is_library for line in lines)
        hottest = {line.phase: line for line in reversed(lines)}
        for one in run.phases:
            if one.line is not None:
                assert hottest[one.name].line == one.line.line
                assert hottest[one.name].total_share == pytest.approx(one.line.share)
        assert {line.gpu_utilization is None for line in lines} == {False}
        alike = [msgspec.structs.replace(line, gpu_utilization=None) for line in lines]
        assert list(run.lines(gpus=False)) == alike


def test_metrics_are_readings_by_name_range_and_rank(tmp_path: Path) -> None:
    with profd.open_run(rankrun.write_run(tmp_path / "a.profd")) as run:
        rss = run.metrics("rss_bytes", rank=1, from_=5, to=10)
        assert {(one.name, one.rank, one.pid, one.value) for one in rss} == {
            ("rss_bytes", 1, rankrun.RANKS[1].pid, 1e9)
        }
        times = [one.at_ns for one in rss]
        assert times == sorted(times)
        assert STARTED_NS + 5 * SECOND_NS <= times[0] <= times[-1] < STARTED_NS + 10 * SECOND_NS
        assert len(times) == 20
        names = {one.name for one in run.metrics()}
        assert {"rss_bytes", "cpu_cores", "gpu_utilization_share", "step_count"} <= names
        assert {one.device for one in run.metrics("gpu_utilization_share")} == {"gpu0"}


def test_a_diff_is_that_of_the_command(path: Path, tmp_path: Path, command: CommandLine) -> None:
    other = synthetic.write_run(tmp_path / "b.profd", seconds=60)
    with profd.open_run(path) as base, profd.open_run(other) as new:
        for diff, options in (
            (base.diff(new), ()),
            (base.diff(new, least=0.5, from_=5), ("--from", 5, "--least", 50)),
        ):
            said = json.loads(command("diff", path, other, "--json", *options))
            assert json.loads(msgspec.json.encode(diff)) == said


def test_a_run_in_progress_is_seen_as_of_each_asking(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=4) as growing, profd.open_run(growing.path) as run:
        assert run.live is not None
        assert (run.live.findings, run.live.hangs) == ((), ())
        before, begun_s = run.summary(), run.live.length_s
        growing.advance(3)
        assert run.live.length_s >= begun_s + 2
        assert run.summary().samples > before.samples
        assert sum(one.samples for one in run.stacks()) == run.summary().samples
        growing.end()
        assert {run.info.state, run.summary().state} == {"ended"}
        assert not run.live


def test_what_is_asked_again_is_not_counted_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Selection] = []

    def summarize(reader: RunReader, selection: Selection) -> object:
        asked.append(selection)
        return whole

    with profd.open_run(path) as run:
        whole = run.summary()
        monkeypatch.setattr("profd.daemon.api.run.summarize", summarize)
        assert (run.findings, run.phases, run.steps) is not None
        assert asked == []
        run.summary(phase="forward")
        run.summary(phase="forward")
        assert [one.phase for one in asked] == ["forward"]


def test_a_notebook_shows_the_summary_and_a_picture_and_nothing_escapes(tmp_path: Path) -> None:
    with profd.open_run(hostiletexts.write_run(tmp_path / "a.profd")) as run:
        page = run._repr_html_()
    assert "Hot functions" in page
    assert page.count("<") == page.count(">") == 3  # <pre>, </pre> and <img …>
    assert all(character.isprintable() or character == "\n" for character in page)
    assert 'src="data:image/svg+xml;base64,' in page


def test_runs_are_opened_by_all_that_names_them_and_notes_say_what_was_passed_over(
    path: Path, tmp_path: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = profd_home / "runs"
    runs.mkdir()
    with pytest.raises(NoSuchRun, match="there are no runs yet"):
        profd.open_run()
    (runs / f"{RUN_ID}.profd").write_bytes(path.read_bytes())
    (runs / "20261122-120000-broken-3fa9.profd").write_text("no run")
    for word in (RUN_ID, "cifar", path, str(path)):
        with profd.open_run(word) as run:
            assert (run.info.id, list(run.notes)) == (RUN_ID, [])
    with profd.open_run() as run:
        assert run.info.id == RUN_ID
        assert [note.partition(":")[0] for note in run.notes] == ["passed over"]
    with profd.open_run(write_folder(tmp_path / "job")) as run:
        assert run.summary().run == f"{JOB} on 2 nodes"
    monkeypatch.chdir(tmp_path)
    with profd.open_run(Path("a.profd")) as run:
        assert run.info.id == RUN_ID
    with pytest.raises(UsageError, match="no folder"):
        profd.open_run(path, job="x")
    assert [(one.run, one.state) for one in profd.list_runs()] == [
        ("20261122-120000-broken-3fa9", "unreadable"),
        (RUN_ID, "ended"),
    ]


def test_a_closed_run_and_a_refused_one_leave_no_file_open(path: Path, tmp_path: Path) -> None:
    def held() -> set[str]:
        return {str(one.resolve()) for one in Path("/proc/self/fd").iterdir()} & {str(path)}

    with profd.open_run(path) as run:
        assert held()
        assert isinstance(run, Run)
    assert held() == set()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(profd.ProfdError):
        profd.open_run(path)
    assert held() == set()
