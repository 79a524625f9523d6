"""What Python did while the GPU was idle: known answers from a run whose GPU rests while the main
thread waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.gpurun import OTHER_RANK, SECONDS, busy, waits, write_gpu_run
from support.present import there
from support.synthetic import BACKWARD, DATA_WAIT, MAIN, STARTED_NS, write_records, write_run

from profd.cli.main import run_command_line
from profd.daemon.analyze.gpu import Gpu, take_gpu_idle, take_gpus
from profd.daemon.analyze.gputracks import GpuTracks
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile, utilization_by_stack
from profd.daemon.analyze.selection import MAIN_THREADS, Condition, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode
from profd.daemon.render.sections import gpu_lines
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import DeviceSeen, Point, PointsTaken, Record
from profd.daemon.store.rows import IntervalRow
from profd.daemon.timerange import TimeRange


@pytest.fixture
def one_gpu(tmp_path: Path) -> Path:
    return write_gpu_run(tmp_path / "a.profd", {"0": waits}, {})


def test_idle_time_belongs_to_what_ran_meanwhile(one_gpu: Path) -> None:
    with RunReader(one_gpu) as reader:
        idle = there(summarize(reader).gpu_idle)
    # A second of two in which the GPU is idle, and a tenth of the other one.
    assert [idle.share, idle.known_s, idle.period_s] == pytest.approx([0.55, 20, 0.1], abs=0.003)
    for phase, share in (("data wait", 10 / 11), ("backward", 1 / 11)):
        assert idle.phases[phase].low <= share <= idle.phases[phase].high
        assert idle.phases[phase].high - idle.phases[phase].low < 0.06
    assert [(line.phase, line.idle.high > 0.9) for line in idle.lines] == [
        ("data wait", True),
        ("backward", False),
    ]


def test_idle_time_of_a_phase_is_that_of_all(one_gpu: Path) -> None:
    with RunReader(one_gpu) as reader:
        whole, waiting = (
            there(
                take_gpu_idle(reader, Selection(phase=phase, main_threads=True), PhaseIndex(reader))
            )
            for phase in (None, "data wait")
        )
    assert waiting.phases == {"data wait": whole.phases["data wait"]}
    assert waiting.share == whole.share


def test_of_a_long_run_a_part_counts_for_all(
    one_gpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunReader(one_gpu) as reader:
        whole, read = (
            there(take_gpu_idle(reader, MAIN_THREADS, PhaseIndex(reader))),
            RunReader.intervals,
        )
        monkeypatch.setattr("profd.daemon.analyze.gpu._LOOKED_AT_NS", 8 * SECOND_NS)
        monkeypatch.setattr("profd.daemon.analyze.gpu._LEAST_LOOKED_AT_NS", 0)
        monkeypatch.setattr("profd.daemon.analyze.gpu._SLICE_NS", 2 * SECOND_NS)
        ranges: list[TimeRange] = []

        def watched(reader: RunReader, time: TimeRange, threads: set[int]) -> Iterator[IntervalRow]:
            ranges.append(time)
            return read(reader, time, threads)

        monkeypatch.setattr(RunReader, "intervals", watched)
        part = there(take_gpu_idle(reader, MAIN_THREADS, PhaseIndex(reader)))
    assert [to_ns - from_ns for from_ns, to_ns in ranges] == [2 * SECOND_NS] * 4
    assert part.share == whole.share
    for phase, idle in whole.phases.items():
        assert (part.phases[phase].low, part.phases[phase].high) == pytest.approx(
            (idle.low, idle.high), abs=0.05
        )


def test_gpus_of_other_processes_are_not_idle_for_the_run(tmp_path: Path) -> None:
    path = write_gpu_run(
        tmp_path / "a.profd", {"0": busy, "1": lambda _: 0.0}, {MAIN: ("0",), OTHER_RANK: ("0",)}
    )
    with RunReader(path) as reader:
        assert there(summarize(reader).gpu_idle).share == pytest.approx(0.2)


def test_each_rank_is_judged_by_its_own_gpu(tmp_path: Path) -> None:
    holders = {MAIN: ("0",), OTHER_RANK: ("1",)}
    path = write_gpu_run(tmp_path / "a.profd", {"0": waits, "1": busy}, holders)
    with RunReader(path) as reader:
        profile = take_profile(
            reader, Selection(main_threads=True, when=(Condition("gpu-idle", 0.05),))
        )
        ranks = {row.rank: row.id for row in reader.processes.values()}
        tracks = GpuTracks(reader)
        assert {rank: tracks.used_by(process) for rank, process in ranks.items()} == {
            0: {"0"},
            1: {"1"},
        }
    assert profile.total_ns == pytest.approx(10 * SECOND_NS)


def test_a_process_on_two_gpus_is_judged_by_their_mean(tmp_path: Path) -> None:
    path = write_gpu_run(tmp_path / "a.profd", {"0": waits, "1": busy}, {MAIN: ("0", "1")})
    with RunReader(path) as reader:
        means = utilization_by_stack(reader, GpuTracks(reader), Selection(rank=0))
        stack = next(
            stack
            for stack in means
            if reader.frames_of(stack)[-1].function == DATA_WAIT[-1].function
        )
    assert means[stack].utilization == pytest.approx(0.4)


def test_a_higher_threshold_takes_more(tmp_path: Path) -> None:
    path = write_gpu_run(tmp_path / "a.profd", {"0": busy}, {})
    with RunReader(path) as reader:
        taken = [
            take_profile(reader, Selection(rank=0, when=(Condition("gpu-idle", limit),))).total_ns
            for limit in (0.8, 0.81)
        ]
    assert taken == [0, SECONDS * SECOND_NS]


def test_an_interval_counts_with_the_part_that_lies_inside(tmp_path: Path) -> None:
    path = write_gpu_run(
        tmp_path / "a.profd", {"0": lambda at_ms: 0.0 if (at_ms - 1) % 1000 < 300 else 1.0}, {}
    )
    with RunReader(path) as reader:
        profile = take_profile(reader, Selection(rank=0, when=(Condition("gpu-idle"),)))
    assert profile.total_ns == pytest.approx(0.3 * SECONDS * SECOND_NS)
    assert profile.total_samples == pytest.approx(0.3 * SECONDS * 100, abs=2)


def test_the_text_says_how_busy_the_gpu_was_during_each_function_and_the_shares_of_idle_time(
    one_gpu: Path,
) -> None:
    with RunReader(one_gpu) as reader:
        text = summary_text(summarize(reader), 120)
    lines = text.splitlines()
    title = next(line for line in lines if line.lstrip().startswith("self"))
    end = title.index("GPU") + len("GPU")
    for stack, busy_then in ((BACKWARD, " 90 %"), (DATA_WAIT, "  0 %")):
        row = next(line for line in lines if stack[-1].function in line)
        assert row[:end].endswith(busy_then)
    headline, waiting, backward, resolution = text.partition("\nGPU idle")[2].splitlines()[:4]
    assert headline == " 55 % of the time: 11.0 s of 20.0 s of all GPUs"
    assert re.fullmatch(r"  8\d-9\d % of the idle time is data wait \(train.py:\d+  .*", waiting)
    assert re.fullmatch(r"  [5-9]-1\d % of the idle time is backward.*", backward)
    assert resolution == "  gaps shorter than 100 ms are resolved in windows only"


def test_the_text_names_the_gpus() -> None:
    gpu = Gpu(0, "NVIDIA H100", "gpu0", "GPU-1", 80_000_000_000, 0.45, 12_100_000_000, 212.4, 4.5e6)
    bare = msgspec.structs.replace(
        gpu,
        memory_bytes=None,
        memory_used_bytes=None,
        power_watts=None,
        energy_joules=None,
        utilization=None,
    )
    assert list(gpu_lines([gpu, bare])) == [
        "  gpu0  NVIDIA H100: utilized 45 %, memory 12 GB of 80 GB, 212 W, 1,250 Wh",
        "  gpu0  NVIDIA H100: utilized -",
    ]


@pytest.mark.parametrize(
    "words", [["summary", "--gpu-idle"], ["export", "--format", "collapsed", "--gpu-idle=20"]]
)
def test_the_commands_take_the_condition(
    words: list[str], one_gpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line([words[0], str(one_gpu), *words[1:]]) == 0
    output = capsys.readouterr().out.partition("Processes")[0]
    assert DATA_WAIT[-1].function in output
    assert BACKWARD[-1].function not in output


def test_a_range_shorter_than_the_readings_is_refused(
    one_gpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["summary", str(one_gpu), "--gpu-idle", "--from", "1", "--to", "1.05"]
    assert run_command_line(words) == ExitCode.USAGE
    assert "read every 100 ms, which says nothing of 50 ms" in capsys.readouterr().err


def test_a_run_without_a_gpu_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_gpu_run(tmp_path / "a.profd", {}, {})
    with RunReader(path) as reader:
        assert summarize(reader).gpu_idle is None
    assert run_command_line(["summary", str(path), "--gpu-idle"]) == ExitCode.USAGE
    assert "no readings of a GPU's utilization" in capsys.readouterr().err


GIB = 1 << 30


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a run of four seconds: gpu0 was busy for the first half, and gave no reading of its
    power.
    """
    found: list[Record] = [DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA H100", "GPU-a", 80 * GIB)]
    found.append(DeviceSeen(STARTED_NS, "gpu1", 1, "NVIDIA A100", "GPU-b"))
    for second in range(5):
        points = (
            Point("gpu_utilization_share", 1.0 if second <= 2 else 0.0, device="gpu0"),
            Point("gpu_memory_used_bytes", float((second + 1) * GIB), device="gpu0"),
        )
        found.append(PointsTaken(STARTED_NS + second * SECOND_NS, points))
    return write_records(tmp_path / "run.profd", found)


def test_gpus_have_their_utilization_and_memory_of_the_run_or_a_range(run: Path) -> None:
    with RunReader(run) as reader:
        assert summarize(reader).gpus == (
            Gpu(0, "NVIDIA H100", "gpu0", "GPU-a", 80 * GIB, 0.5, 5 * GIB, None, None),
            Gpu(1, "NVIDIA A100", "gpu1", "GPU-b", None, None, None, None, None),
        )
        gpu = summarize(reader, Selection(to_ns=STARTED_NS + 2 * SECOND_NS)).gpus[0]
    # What is read at the end of the range held since the reading before.
    assert (gpu.utilization, gpu.memory_used_bytes) == (1.0, 3 * GIB)


def test_the_energy_is_that_of_the_time_for_which_the_power_is_known(tmp_path: Path) -> None:
    readings = {9: 100.0, 10: 100.0, 11: 300.0, 12: 200.0, 60: 400.0}
    points = [
        PointsTaken(
            STARTED_NS + at_s * SECOND_NS, (Point("gpu_power_watts", watts, device="gpu0"),)
        )
        for at_s, watts in readings.items()
    ]
    device = DeviceSeen(STARTED_NS, "gpu0", 0, "NVIDIA H100", "GPU-1", 80_000_000_000)
    path = write_run(tmp_path / "a.profd", seconds=70, also=[device, *points])
    with RunReader(path) as reader:
        (gpu,) = take_gpus(reader, Selection())
    held_s = {9: 1, 10: 1, 11: 1, 12: 1, 60: 3}  # a reading holds for three distances at most
    assert gpu.energy_joules == pytest.approx(sum(readings[at] * held_s[at] for at in readings))
    assert there(gpu.power_watts) * sum(held_s.values()) == pytest.approx(gpu.energy_joules)
