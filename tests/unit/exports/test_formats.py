"""Every format of an export says the same of the same run, and says it to its own reader."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from support import traceevents
from support.commandline import CommandLine
from support.findingruns import IMPORT
from support.folders import DATA
from support.gpurun import waits, write_gpu_run
from support.synthetic import (
    BACKWARD,
    MAIN,
    MAIN_TID,
    PHASE_SHARES,
    RATE_HZ,
    RUN_ID,
    STARTED_NS,
    main_process,
    recording,
    worker,
    write_records,
    write_run,
)

from profd.cli.main import run_command_line
from profd.daemon.analyze.phases import STARTUP
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import ExitCode
from profd.daemon.exports import svg
from profd.daemon.exports.formats import FORMATS, collapsed_lines
from profd.daemon.exports.perfetto import perfetto
from profd.daemon.exports.pprof import pprof, profile_message
from profd.daemon.exports.speedscope import speedscope
from profd.daemon.exports.svg import flame_graph_svg
from profd.daemon.exports.tables import parquet_files
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame, ProcessSeen

SECONDS = 4
FORMULA = "=HYPERLINK(A1)"
THREADS = 4  # main, pin memory, two workers
SCHEMA = json.loads((DATA / "speedscope-schema.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / f"{RUN_ID}.profd", seconds=SECONDS)


@pytest.fixture
def reader(run: Path) -> Iterator[RunReader]:
    with RunReader(run) as opened:
        yield opened


class TestSpeedscope:
    def test_it_is_what_speedscope_says_it_reads_with_the_time_of_each_thread(
        self, reader: RunReader
    ) -> None:
        file = json.loads(speedscope(reader, Selection()))
        jsonschema.validate(file, SCHEMA)
        assert len(file["profiles"]) == THREADS
        for profile in file["profiles"]:
            assert (
                sum(profile["weights"])
                == profile["endValue"] - profile["startValue"]
                == SECONDS * SECOND_NS
            )
            assert len(profile["samples"]) == len(profile["weights"])
        (main,) = json.loads(speedscope(reader, MAIN_THREADS))["profiles"]
        spent: Counter[str] = Counter()
        for stack, weight in zip(main["samples"], main["weights"], strict=True):
            spent[file["shared"]["frames"][stack[-1]]["name"]] += weight
        assert spent[BACKWARD[-1].function] / spent.total() == pytest.approx(
            PHASE_SHARES["backward"]
        )

    def test_what_a_selection_leaves_out_is_empty(self, tmp_path: Path) -> None:
        with RunReader(write_gpu_run(tmp_path / "a.profd", {"0": waits}, {})) as reader:
            profile = json.loads(speedscope(reader, Selection(rank=0, phase="backward")))[
                "profiles"
            ][0]
        empty = sum(
            weight
            for stack, weight in zip(profile["samples"], profile["weights"], strict=True)
            if not stack
        )
        assert empty == 9 * SECOND_NS


def test_labels_of_pprof_say_whose_samples_they_are_and_totals_are_those_of_collapsed(
    reader: RunReader,
) -> None:
    assert pprof(reader, Selection()) == pprof(reader, Selection())
    profile = profile_message()
    profile.ParseFromString(gzip.decompress(pprof(reader, Selection())))
    collapsed = samples_by_stack(collapsed_lines(reader, Selection()))
    assert sum(sample.value[0] for sample in profile.sample) == sum(collapsed.values())
    assert sum(sample.value[1] for sample in profile.sample) == THREADS * SECONDS * SECOND_NS
    text = profile.string_table
    found: list[dict[str, str | int]] = [
        {text[label.key]: text[label.str] if label.str else label.num for label in sample.label}
        for sample in profile.sample
    ]
    assert {one["role"] for one in found} == {"main", "worker"}
    assert {one["worker"] for one in found if "worker" in one} == {1, 2}
    spent: Counter[str] = Counter()
    for one, sample in zip(found, profile.sample, strict=True):
        if one["role"] == "main" and one["thread"] == "MainThread":
            spent[str(one["phase"])] += sample.value[1]
    shares = {phase: time_ns / spent.total() for phase, time_ns in spent.items()}
    assert shares == pytest.approx(PHASE_SHARES)


@pytest.mark.requires("go")
def test_go_reads_pprof(reader: RunReader, tmp_path: Path) -> None:
    file = tmp_path / "a.pb.gz"
    file.write_bytes(pprof(reader, MAIN_THREADS))
    words = ["go", "tool", "pprof", "-top", "-unit=seconds", str(file)]
    top = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"of {SECONDS}s total" in top
    share = next(line.split()[1] for line in top.splitlines() if BACKWARD[-1].function in line)
    assert float(share.rstrip("%")) == pytest.approx(100 * PHASE_SHARES["backward"])


def test_widths_in_svg_are_shares(reader: RunReader) -> None:
    root = ElementTree.fromstring(flame_graph_svg(reader, MAIN_THREADS))
    widths = {}
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        title, shape = group[0].text or "", group[1]
        widths[title.split(" (")[0].split("\n")[0]] = float(shape.attrib["width"])
    assert widths[BACKWARD[-1].function] / widths["all"] == pytest.approx(
        PHASE_SHARES["backward"], abs=0.001
    )
    ElementTree.fromstring(
        flame_graph_svg(reader, Selection(to_ns=1))
    )  # an empty one is a picture too


def test_svg_leaves_imports_out_unless_they_are_asked_for_or_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = (MAIN_TID, "MainThread", True, ((IMPORT, 400), (BACKWARD, 600)))
    found = main_process(), recording(MAIN, STARTED_NS, (thread,))
    with RunReader(write_records(tmp_path / "imports.profd", found)) as reader:

        def drawn(selection: Selection) -> list[bool]:
            picture = flame_graph_svg(reader, selection).decode()
            texts = ("_find_and_load", BACKWARD[-1].function, "60 samples without startup")
            return [text in picture for text in texts]

        assert drawn(MAIN_THREADS) == [False, True, True]
        assert drawn(Selection(phase=STARTUP)) == [True, False, False]
        monkeypatch.setattr(svg, "shows_imports", lambda findings: True)
        assert drawn(MAIN_THREADS) == [True, True, False]
        assert drawn(Selection(to_ns=STARTED_NS + SECOND_NS // 4)) == [True, False, False]


def test_every_kind_of_track_of_perfetto_is_there_with_its_times(reader: RunReader) -> None:
    trace = json.loads(perfetto(reader, Selection()))["traceEvents"]
    traceevents.check(trace)
    slices = [event for event in trace if event["ph"] == "X"]
    tracks = {(event["pid"], event["tid"]) for event in slices}
    assert len(tracks) == THREADS + 3  # of three main threads the phases
    # A frame goes on while stacks begin with it.
    roots = [event for event in slices if (event["name"], event["tid"]) == ("<module>", MAIN_TID)]
    assert [(event["ts"], event["dur"]) for event in roots] == [(0.0, SECONDS * 1e6)]
    spent: Counter[str] = Counter()
    for event in slices:
        if event.get("cat") == "phase" and event["pid"] == MAIN.pid:
            spent[event["name"]] += round(event["dur"])
    assert {name: us / spent.total() for name, us in spent.items()} == pytest.approx(PHASE_SHARES)
    counters = {event["name"] for event in trace if event["ph"] == "C"}
    assert {"cpu_cores", "rss_bytes", "host_cpu_share"} <= counters
    memory = [event for event in trace if event["name"] == "rss_bytes" and event["pid"] == MAIN.pid]
    assert [(event["ts"], event["args"]["value"]) for event in memory[:2]] == [
        (0, 900e6),
        (1e6, 901e6),
    ]
    assert [event["name"].split(":")[0] for event in trace if event["ph"] == "i"] == [
        "started",
        "ended",
    ]
    names = {event["args"]["name"] for event in trace if event["ph"] == "M"}
    assert {"host", "main", "worker 1", "MainThread", "phases"} <= names


def test_csv_holds_every_sample(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    assert run_command_line(["export", str(run), "--format", "csv", "-o", str(folder)]) == 0
    rows = list(csv.DictReader((folder / "samples.csv").open()))
    assert sum(int(row["samples"]) for row in rows) == THREADS * SECONDS * RATE_HZ
    assert {row["pid"] for row in rows} == {str(MAIN_TID), str(worker(1).pid), str(worker(2).pid)}
    series = list(csv.DictReader((folder / "series.csv").open()))
    assert {row["value"] for row in series if row["name"] == "host_load_1min"} == {"2.5"}
    assert [row["role"] for row in csv.DictReader((folder / "processes.csv").open())] == [
        "main",
        *["worker"] * 2,
    ]
    assert [row["kind"] for row in csv.DictReader((folder / "events.csv").open())] == [
        "started",
        "ended",
    ]


def test_no_cell_of_csv_is_a_formula(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    stack = (Frame("<module>", "/srv/a.py", 1), Frame(FORMULA, "/srv/a.py", 2))
    taken = recording(MAIN, STARTED_NS, ((MAIN_TID, f"@{FORMULA}", True, ((stack, 1000),)),))
    run = write_records(tmp_path / "a.profd", [main_process(), taken])
    assert run_command_line(["export", str(run), "--format", "csv", "-o", str(folder)]) == 0
    cells = [cell for file in folder.iterdir() for row in csv.reader(file.open()) for cell in row]
    assert {f"'{FORMULA}", f"'@{FORMULA}"} <= set(cells)
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "-"))]


@pytest.mark.requires("pyarrow")
def test_parquet_holds_the_same(reader: RunReader) -> None:
    import pyarrow
    from pyarrow import parquet

    files = parquet_files(reader, Selection())
    table = parquet.read_table(pyarrow.BufferReader(files["samples.parquet"]))
    assert sum(table.column("samples").to_pylist()) == THREADS * SECONDS * RATE_HZ
    assert table.schema.field("rank").type == pyarrow.int64()
    assert set(table.column("rank").to_pylist()) == {None}


def test_tables_need_a_folder_and_collapsed_alone_has_threads(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profd = CommandLine(capsys)
    for form in ("csv", "parquet"):
        assert "-o FOLDER" in profd("export", run, "--format", form, code=ExitCode.USAGE)
    (tmp_path / "taken").write_text("mine")
    profd(
        "export", run, "--format", "csv", "-o", tmp_path / "taken", code=ExitCode.UNWRITABLE_OUTPUT
    )
    assert (tmp_path / "taken").read_text() == "mine"
    assert "leave them out" in profd(
        "export", run, "--format", "svg", "--threads", code=ExitCode.USAGE
    )


def samples_by_stack(lines: Iterator[str]) -> dict[str, int]:
    return {stack: int(samples) for stack, _, samples in (line.rpartition(" ") for line in lines)}


def test_line_is_written_as_py_spy_writes_it_once_for_all_processes_or_with_each_in_front(
    reader: RunReader,
) -> None:
    loop = "<module> (train.py:96);main (train.py:90);train_epoch (train.py:65)"
    assert samples_by_stack(collapsed_lines(reader, MAIN_THREADS))[loop] == 0.04 * 100 * SECONDS
    merged = samples_by_stack(collapsed_lines(reader, Selection()))
    apart = samples_by_stack(collapsed_lines(reader, Selection(), processes=True))
    deform = [stack for stack in merged if stack.endswith("elastic_deform (augment.py:12)")]
    assert [merged[stack] for stack in deform] == [2 * 0.8 * 100 * SECONDS]
    assert len(apart) == len(merged) + 2  # a second worker, with its two stacks
    assert list(collapsed_lines(reader, Selection(thread="none"))) == []
    (samples,) = samples_by_stack(
        collapsed_lines(reader, Selection(main_threads=True, phase="data wait"))
    ).values()
    assert samples == 0.4 * 100 * SECONDS
    roots = {
        tuple(line.split(";")[:2])
        for line in collapsed_lines(reader, Selection(), processes=True, threads=True)
    }
    command = '"python train.py --epochs 2"'
    assert roots == {
        (f"process 4242:{command}", "thread (4242): MainThread"),
        (f"process 4242:{command}", "thread (4250): Thread-1 (_pin_memory_loop)"),
        (f"process 4243:{command}", "thread (4243): MainThread"),
        (f"process 4244:{command}", "thread (4244): MainThread"),
    }


@pytest.mark.parametrize(
    "roots", [{}, {"processes": True}, {"threads": True}, {"processes": True, "threads": True}]
)
def test_samples_add_up_to_those_of_the_selection(
    reader: RunReader, roots: dict[str, bool]
) -> None:
    everything = sum(interval.samples for interval in reader.intervals())
    assert len({each.ending for each in FORMATS.values()}) == len(FORMATS)
    assert (
        sum(samples_by_stack(collapsed_lines(reader, Selection(), **roots)).values()) == everything
    )
    assert (
        sum(samples_by_stack(collapsed_lines(reader, MAIN_THREADS, **roots)).values())
        == 100 * SECONDS
    )


def test_name_breaks_neither_frame_nor_line_nor_terminal(tmp_path: Path) -> None:
    stack = (Frame("a;b\nc", "/home/ada/we;ird.py", 1), Frame("\x1b[31mred", "/home/ada/x.py", 0))
    seen = ProcessSeen(MAIN, None, ("sh", "-c", "x;y\n"), "main", None, None, None, STARTED_NS)
    thread = (1, "worker; \x07", True, [(stack, 1000)])
    taken = recording(MAIN, STARTED_NS, [thread])
    with RunReader(write_records(tmp_path / "a.profd", [seen, taken])) as reader:
        (line,) = collapsed_lines(reader, Selection(), processes=True, threads=True)
    assert line.isprintable()
    assert line.split(";")[1:] == [
        r"thread (1): worker: \x07",
        r"a:b\nc (we:ird.py:1)",
        r"\x1b[31mred 100",
    ]
