"""`profd mcp` as an assistant starts it: over its standard streams, and without a write."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support import hostiletexts, synthetic
from support.completerun import write_complete_run
from support.synthetic import RUN_ID, live_run

from profd.cli.answers import MOST_BYTES
from profd.cli.mcp import OF_A_RUN

pytestmark = pytest.mark.requires("mcp")
PROFD = (sys.executable, "-m", "profd", "mcp")
WRITES = re.compile(
    r"\b(?:openat?|openat2|creat)\(.*O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND)"
    r"|\b(?:unlink|rename|mkdir|rmdir|link|symlink|truncate|ftruncate|chmod|chown|fchmod|fchown"
    r"|utimensat|mknod|kill|tgkill|tkill|ptrace|process_vm_writev|connect|bind|setxattr)\w*\("
)
OF_READERS = re.compile(
    r'-(?:wal|shm)", O_RDWR|fchown\(\d+, 0, 0\)|ftruncate\(\d+, (?:3|32768)\)|"/dev/null"|/__pycache__/|"/proc/self/comm"'
)
"""What each reader of a run with a log does, by SQLite: it takes its place in the log's memory.

It gives that its size, and as root its owner. A program of profd names itself, and Python keeps
what it has compiled.
"""


@pytest.fixture
def runs(profd_home: Path) -> Path:
    """Give the folder of this home's runs with one that has ended."""
    (profd_home / "runs").mkdir()
    write_complete_run(profd_home / "runs" / f"{RUN_ID}.profd")
    return profd_home / "runs"


def connect(*command: str) -> Any:  # noqa: ANN401  the SDK may not be installed
    """Return a client that starts the server by this command."""
    from mcp import Client, StdioServerParameters

    return Client(
        StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    )


def times_of(runs: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in runs.iterdir() if path.suffix != ".profd-shm"}


@pytest.mark.usefixtures("runs")
async def test_an_assistant_starts_it_and_asks() -> None:
    async with connect(*PROFD) as asking:
        assert asking.server_info.name == "profd"
        assert {tool.name for tool in (await asking.list_tools()).tools} > OF_A_RUN.keys()
        said = (await asking.call_tool("summary", {})).content[0].text
        assert "data wait     40 %" in said


async def test_fifty_at_once_some_given_up_on_a_run_that_grows_and_on_hostile_names(
    runs: Path,
) -> None:
    hostiletexts.write_run(runs / "20261102-120000-hostile-3fa9.profd")
    asked: list[tuple[str, dict[str, object]]] = [
        (tool, {"run": run}) for run in ("hostile", "now", RUN_ID) for tool in OF_A_RUN
    ]
    asked += [("list_runs", {}), ("list_processes", {}), ("compare", {"base": RUN_ID})]
    asked += [("summary", {"run": "none"}), ("dump", {"target": 999999999}), ("stacks", {"to": 1})]
    asked = (asked * 3)[:50]
    refused = {"summary": "no run is called none", "dump": "there is no process", "stacks": "to"}
    with live_run(runs / "20261103-120000-now-3fa9.profd", seconds=3) as growing:
        async with connect(*PROFD) as asking:
            answers = [asyncio.create_task(asking.call_tool(tool, words)) for tool, words in asked]
            await asking.list_tools()  # all have been sent before it
            for given_up in answers[::10]:
                given_up.cancel()
            growing.advance(3)
            said = await asyncio.gather(*answers, return_exceptions=True)
            growing.advance(3)
            last = await asking.call_tool("stacks", {"run": "now"})
    assert last.content[0].text.split("\n")[2].startswith("9.0 s of thread time")
    for (tool, words), one in zip(asked, said, strict=True):
        if isinstance(one, BaseException):  # the others that were given up were answered by then
            assert isinstance(one, asyncio.CancelledError), one
            continue
        text = one.content[0].text
        is_wrong = words.get("run") == "none" or not words.keys().isdisjoint({"target", "to"})
        assert one.is_error == is_wrong, text
        assert not is_wrong or refused[tool] in text
        assert all(sign.isprintable() or sign == "\n" for sign in text)
        assert len(text.encode()) <= MOST_BYTES


@pytest.mark.requires("strace")
async def test_it_writes_nothing_signals_nobody_and_connects_to_nothing(
    runs: Path, tmp_path: Path
) -> None:
    left = runs / "20261101-120000-left-3fa9.profd"
    with live_run(tmp_path / "one.profd", seconds=3) as cut_off:
        for end in ("", "-wal"):  # as a recorder that was killed leaves them
            shutil.copy(f"{cut_off.path}{end}", f"{left}{end}")
    synthetic.write_run(runs / "20261102-120000-live-3fa9.profd", seconds=2, live=True)
    trace = tmp_path / "trace"
    calls = "--trace=file,desc,network,signal,process,ptrace,process_vm_writev"
    with live_run(runs / "20261103-120000-now-3fa9.profd", seconds=3):
        before = times_of(runs)
        async with connect("strace", "-f", "-qq", "-o", str(trace), calls, *PROFD) as asking:
            for run in (RUN_ID, "left", "live", "now"):
                for tool in OF_A_RUN:
                    result = await asking.call_tool(tool, {"run": run})
                    assert not result.is_error, result.content[0].text
            await asking.call_tool("list_runs", {})
            await asking.call_tool("compare", {"base": "left", "new": RUN_ID})
        assert times_of(runs) == before
    done = [line for line in trace.read_text().splitlines() if WRITES.search(line)]
    assert [line for line in done if not OF_READERS.search(line)] == []
