"""The folder of traces for TensorBoard and HTA: names, ranks and steps, and all else as torch wrote
it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.commandline import CommandLine
from support.synthetic import MAIN, STARTED_NS, main_process, write_records

from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import RunUnreadable, UsageError
from profd.daemon.exports.tensorboard import tensorboard_files
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Identity, WindowStep, WindowTaken

OPERATOR = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::add",
    "pid": 7,
    "tid": 8,
    "ts": 2.5,
    "dur": 1,
    "args": {"x": [1]},
}
SECOND = Identity(MAIN.pid + 1, MAIN.start_ticks)


def window(identity: Identity, asked: int, **trace: object) -> WindowTaken:
    text = msgspec.json.encode(
        {"baseTimeNanoseconds": STARTED_NS, "traceEvents": [OPERATOR], **trace}
    )
    step = WindowStep(STARTED_NS + 2_000, STARTED_NS + 5_500)
    return WindowTaken(
        identity, STARTED_NS + 9, "kineto", STARTED_NS + asked, start_ns=STARTED_NS + asked * 10**9,
        end_ns=STARTED_NS + asked * 10**9 + 5_500, steps=(step,), trace_bytes=len(text), trace=gzip.compress(text),
    )  # fmt: skip


def write_run(path: Path, *windows: WindowTaken, ranks: bool = False) -> Path:
    seen = (
        msgspec.structs.replace(main_process(), identity=identity, rank=rank if ranks else None)
        for rank, identity in enumerate((MAIN, SECOND))
    )
    return write_records(path, (*seen, *windows))


def packed(path: Path) -> Mapping[str, bytes]:
    with RunReader(path) as reader:
        return {
            name: gzip.decompress(content)
            for name, content in tensorboard_files(reader, Selection()).items()
        }


def files(path: Path) -> Mapping[str, dict[str, Any]]:
    return {name: json.loads(content) for name, content in packed(path).items()}


def test_each_rank_has_a_file_with_its_place_in_the_world(tmp_path: Path) -> None:
    written = packed(
        write_run(tmp_path / "a.profd", window(MAIN, 1), window(SECOND, 1), ranks=True)
    )
    assert {re.sub(r"\d{6,}", "N", name) for name in written} == {
        f"rank{n}.N.pt.trace.json.gz" for n in (0, 1)
    }
    infos = [json.loads(trace)["distributedInfo"] for trace in written.values()]
    assert infos == [{"rank": rank, "world_size": 2, "backend": "unknown"} for rank in (0, 1)]
    # HTA looks for it so, near the beginning.
    assert [re.findall(rb'"rank":\s+(\d+)', trace[:200]) for trace in written.values()] == [
        [b"0"],
        [b"1"],
    ]


def test_what_torch_wrote_stays_and_steps_are_added_where_it_wrote_none(tmp_path: Path) -> None:
    (trace,) = files(write_run(tmp_path / "a.profd", window(MAIN, 1, schemaVersion=1))).values()
    assert trace["schemaVersion"] == 1
    operator, step = trace["traceEvents"]
    assert operator == OPERATOR
    assert (step["name"], step["pid"], step["tid"], step["ts"], step["dur"]) == (
        "ProfilerStep#0",
        7,
        8,
        2.0,
        3.5,
    )
    (trace,) = files(write_run(tmp_path / "b.profd", window(MAIN, 1, traceEvents=[]))).values()
    assert [event["name"] for event in trace["traceEvents"]] == [
        "ProfilerStep#0"
    ]  # there is no operator
    torchs = {**OPERATOR, "name": "ProfilerStep#9", "cat": "user_annotation"}
    info = {"backend": "nccl", "rank": 3, "world_size": 8}
    run = write_run(
        tmp_path / "c.profd", window(MAIN, 1, traceEvents=[torchs], distributedInfo=info)
    )
    (trace,) = files(run).values()
    assert (trace["traceEvents"], trace["distributedInfo"]) == ([torchs], info)


def test_windows_that_were_asked_for_last_are_taken(tmp_path: Path) -> None:
    (name,) = files(write_run(tmp_path / "a.profd", window(MAIN, 1), window(MAIN, 2)))
    assert name == f"pid{MAIN.pid}.{(STARTED_NS + 2 * 10**9) // 10**6}.pt.trace.json.gz"
    with pytest.raises(UsageError, match="no window"):
        files(write_run(tmp_path / "b.profd"))


def test_command_writes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a.profd", window(MAIN, 1))
    text = CommandLine(capsys)("export", run, "--format", "tensorboard", "-o", tmp_path / "log")
    (written,) = (tmp_path / "log").iterdir()
    assert str(written) in text


def test_a_trace_is_unpacked_up_to_what_its_window_says(tmp_path: Path) -> None:
    """Packed, a thousand bytes take one: a run of a megabyte would unpack to gigabytes of events."""
    one = window(MAIN, 1)
    for said in (one.trace_bytes - 1, one.trace_bytes + 1, 0):
        path = write_run(tmp_path / f"{said}.profd", msgspec.structs.replace(one, trace_bytes=said))
        with pytest.raises(RunUnreadable, match="has not the"):
            packed(path)
