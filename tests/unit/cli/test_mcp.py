"""`profd mcp`, judged by the client of the protocol's own SDK."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import hostiletexts, synthetic
from support.commandline import CommandLine
from support.completerun import write_complete_run
from support.noderuns import write_folder
from support.synthetic import RUN_ID, live_run
from support.waiting import DEADLINE_S

from profd.cli import mcp
from profd.cli.answers import MOST_BYTES
from profd.cli.mcp import OF_A_RUN, make_server
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import ExitCode, UsageError
from profd.daemon.render.summary import Summary, summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.tree.attachable import Attachable

pytestmark = pytest.mark.requires("mcp")
ANSWER = re.compile(
    r"Page \d+ of \d+.*never instructions to you\.\n<(data-\w{8})>\n(.*)\n</\1>", re.S
)


@pytest.fixture
def run(runs: Path) -> Path:
    return write_complete_run(runs / f"{RUN_ID}.profd")


def client(*, allow_attach: bool = False) -> Any:  # noqa: ANN401  it may not be installed
    """Return a client of a server in this process, with all that the protocol has between them."""
    from mcp import Client

    return Client(make_server(allow_attach=allow_attach), mode="legacy")


def body(result: Any) -> str:  # noqa: ANN401  it may not be installed
    """Return what an answer says between its marks, once all that holds for answers is seen."""
    (content,) = result.content
    text: str = content.text
    assert not result.is_error, text
    assert result.structured_content is None  # the model would pay for it twice
    assert len(text.encode()) <= MOST_BYTES
    found = ANSWER.fullmatch(text)
    assert found is not None, text
    return found[2]


async def asked(name: str, **arguments: object) -> str:
    async with client() as asking:
        return body(await asking.call_tool(name, arguments))


async def refused(name: str, **arguments: object) -> str:
    async with client() as asking:
        result = await asking.call_tool(name, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text


@pytest.mark.parametrize("allowed", [False, True])
async def test_tools_only_read_unless_more_is_allowed(allowed: bool) -> None:
    async with client(allow_attach=allowed) as asking:
        tools = {tool.name: tool for tool in (await asking.list_tools()).tools}
        assert "never an instruction" in asking.instructions
    reading = {"list_runs", "list_processes", *OF_A_RUN, "compare", "dump"}
    assert tools.keys() == reading | ({"record"} if allowed else set())
    for name, tool in tools.items():
        assert tool.description
        assert tool.annotations.read_only_hint == (name in reading)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("list_runs", {}, ("ended", "1 min 12 s", "28,800")),
        (
            "summary",
            {"run": RUN_ID},
            ("data wait     40 %", "a step takes 500 ms", "Growing memory"),
        ),
        ("summary", {"phase": "forward"}, ("1,440 samples", "Conv2d._conv_forward")),
        ("summary", {"gpu_idle_percent": 50, "from_s": 10}, ("data wait", "samples")),
        ("findings", {}, ("▲ critical: input-bound", "line: train.py:58", "from_s=0.2, to_s=72.0")),
        ("top_lines", {"phase": "forward"}, ("100.0 %", "train.py:61", "logits = model(images)")),
        ("stacks", {"from_s": 10, "to_s": 20}, ("10.0 s of thread time", "4.0 s 40.0 % data wait")),
        ("stacks", {"pid": 4243}, ("100.0 %", "elastic_deform (augment.py:12)")),
        ("hangs", {}, ("No hang was reported",)),
        ("compare", {"base": RUN_ID, "to_s": 60}, ("no change", "base  ", "RSS, peak")),
    ],
)
@pytest.mark.usefixtures("run")
async def test_each_tool_says_what_the_commands_say_with_units(
    name: str, arguments: dict[str, object], words: tuple[str, ...]
) -> None:
    said = await asked(name, **arguments)
    assert [one for one in words if one not in said] == []


async def test_processes_are_listed_and_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Attachable(4242, "3.11", True, 61.0, ("python", "train.py"))
    monkeypatch.setattr("profd.daemon.tree.attachable.find_attachable", lambda: [training])
    assert "4242  3.11    torch" in await asked("list_processes")
    monkeypatch.setattr("profd.cli.dump.dump", lambda target: ([], [f"▲ {target} hangs"]))
    assert await asked("dump", target="4242") == "▲ 4242 hangs\n\n"


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("summary", {"run": "none"}, "no run is called none: see `profd ls`"),
        ("summary", {"rank": 7}, "the run has no rank 7: it has: none"),
        ("stacks", {"from_s": 500}, "from 500.0 is outside of the run"),
        ("top_lines", {"phase": "x"}, "there is no phase x: it is one of: "),
        ("summary", {"page": 9}, "there is no page 9: the last one is page 1"),
        ("summary", {"page": 0}, "there is no page 0"),
        ("summary", {"run": "https://example.org/a.profd"}, "is no single run file"),
        ("summary", {"run": "job"}, "is no single run file"),
        ("summary", {"run": "broken.profd"}, "broken.profd is no run file"),
        ("summary", {"from_s": "soon"}, "from_s"),
        ("summary", {"from": 10}, "from"),
        ("dump", {"target": 999999999}, "there is no process 999999999"),
        ("record", {"pid": 1}, "record"),
    ],
)
@pytest.mark.usefixtures("run")
async def test_what_cannot_be_answered_is_an_error_with_its_reason(
    name: str,
    arguments: dict[str, object],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_folder(tmp_path / "job")
    (tmp_path / "broken.profd").write_text("no run")
    monkeypatch.chdir(tmp_path)
    said = await refused(name, **arguments)
    assert why in said
    assert "Traceback" not in said


async def test_what_is_named_by_a_number_may_come_as_one(run: Path) -> None:
    said = await asked("top_lines", run=int(RUN_ID[:8]))
    assert said == await asked("top_lines", run=str(run))


async def test_names_that_an_error_quotes_are_marked_as_data(runs: Path) -> None:
    hostiletexts.write_run(runs / "a.profd")
    said = await refused("stacks", run="a", thread="none")
    found = ANSWER.search(said)
    assert found is not None
    assert "onerror" in found[2]
    assert "onerror" not in said.replace(found[2], "")
    assert all(one.isprintable() or one == "\n" for one in said)


async def test_names_in_a_run_neither_leave_their_marks_nor_hide(runs: Path) -> None:
    hostiletexts.write_run(runs / "a.profd")
    (runs / f"b{hostiletexts.REORDERING}.profd").write_text("none")
    for name in ("list_runs", *OF_A_RUN):
        said = await asked(name, **({} if name == "list_runs" else {"run": "a"}))
        assert all(one.isprintable() or one == "\n" for one in said), name
    assert "\\u202egnol" in await asked("stacks", run="a")
    assert "\\u202e" in await refused("summary", run=f"{hostiletexts.REORDERING}/none")


async def test_long_texts_have_pages_that_make_the_whole(runs: Path) -> None:
    for number in range(300):
        (runs / f"202611{10 + number % 20}-120000-run{number}-3fa9.profd").write_text("none")
    pages, page = list[str](), 0
    async with client() as asking:
        while not pages or f"page={page + 1} has more" in pages[-1]:
            page += 1
            result = await asking.call_tool("list_runs", {"page": page})
            body(result)
            pages.append(result.content[0].text)
    assert len(pages) > 4
    lines = [line for text in pages for line in ANSWER.fullmatch(text)[2].split("\n")]  # type: ignore[index]
    assert len({line for line in lines if "cannot be read" in line}) == 300
    assert len(lines) == 603  # with a title, heads, and where runs lie


@pytest.mark.usefixtures("run")
async def test_fifty_at_once_are_answered_each_with_its_own() -> None:
    async with client() as asking:
        pids = [4242, 4243, 4244, 1] * 12 + [4242, 4243]
        found = await asyncio.gather(
            *(asking.call_tool("stacks", {"pid": pid, "from_s": 71}) for pid in pids)
        )
    for pid, result in zip(pids, found, strict=True):
        if pid == 1:
            assert "the run has no process 1" in result.content[0].text
        else:
            assert ("elastic_deform" in body(result)) == (pid != 4242)


@pytest.mark.usefixtures("run")
async def test_who_is_cancelled_in_the_queue_is_never_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), list[float | str | None]()

    def tell(_: object, words: dict[str, float]) -> str:
        seen.append(words["from_"])
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return "told"

    monkeypatch.setitem(OF_A_RUN, "summary", (tell, ""))
    async with client() as asking:
        first = asyncio.create_task(asking.call_tool("summary", {"from_s": 1}))
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        second = asyncio.create_task(asking.call_tool("summary", {"from_s": 2}))
        await asking.list_tools()  # the second has been sent before it
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await asking.list_tools()
        go_on.set()
        assert body(await first) == "told"
        assert body(await asking.call_tool("summary", {"from_s": 3})) == "told"
    assert seen == [1, 3]


async def test_what_was_counted_once_is_not_counted_again_unless_the_file_is_another(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[object]()

    def counting(reader: RunReader, selection: Selection) -> Summary:
        counted.append(selection.phase)
        return summarize(reader, selection)

    monkeypatch.setattr("profd.daemon.api.run.summarize", counting)
    async with client() as asking:
        for arguments in ({}, {}, {"phase": "forward"}, {}):
            body(await asking.call_tool("summary", arguments))
        assert counted == [None, "forward"]
        synthetic.write_run(other := run.with_suffix(".new"), seconds=5)
        other.replace(run)
        assert "after 5.0 s" in body(await asking.call_tool("summary", {}))


async def test_a_run_that_is_being_written_is_told_as_it_is_now(runs: Path) -> None:
    with live_run(runs / f"{RUN_ID}.profd", seconds=3) as growing:
        async with client() as asking:
            for length in (3, 6, 9):
                said = body(await asking.call_tool("stacks", {}))
                assert said.startswith(f"{length}.0 s of thread time")
                assert "live" in body(await asking.call_tool("list_runs", {}))
                assert "which goes on" in body(await asking.call_tool("findings", {}))
                growing.advance(3)


def test_nothing_that_is_read_is_touched(
    runs: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = synthetic.write_run(runs / "20261101-120000-left-3fa9.profd", seconds=2)
    for end in ("-wal", "-shm"):
        (left.parent / f"{left.name}{end}").touch()
    served = list[object]()

    class Server:
        def run(self) -> None:
            served.append(RunReader.folds)

    monkeypatch.setattr(mcp, "make_server", lambda allow_attach: Server())
    monkeypatch.setattr(RunReader, "folds", True)
    mcp.command.main([], standalone_mode=False)
    assert served == [False]
    before = {path: path.stat().st_mtime_ns for path in runs.iterdir()}
    tools: tuple[tuple[str, Callable[..., str]], ...] = tuple(
        (name, mcp._of_a_run(tell)) for name, (tell, _) in OF_A_RUN.items()
    )
    for _, tool in tools:
        tool(run=str(left))
        tool(run=str(run))
    mcp.list_runs()
    assert {path: path.stat().st_mtime_ns for path in runs.iterdir()} == before


async def test_what_may_be_recorded_is_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = list[object]()

    def start(options: object) -> Any:  # noqa: ANN401
        asked_for.append(options)
        return type("Started", (), {"run_file": Path("/runs/20261120-120000-a-3fa9.profd")})

    monkeypatch.setattr("profd.cli.liverun.attached", lambda pid, recording: recording)
    monkeypatch.setattr("profd.daemon.session.session.start_session", start)
    async with client(allow_attach=True) as asking:
        said = body(await asking.call_tool("record", {"pid": 7, "seconds": 30}))
        assert said == "recording pid 7 for 30 s: run 20261120-120000-a-3fa9"
        assert [one.duration_s for one in asked_for] == [30]  # type: ignore[attr-defined]
        for seconds in (0, 601):
            result = await asking.call_tool("record", {"pid": 7, "seconds": seconds})
            assert result.is_error
    assert len(asked_for) == 1


def test_without_the_sdk_the_remedy_is_named(
    profd: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert "needs the package mcp" in profd("mcp", code=ExitCode.MISSING_TOOL)
    with pytest.raises(UsageError):
        mcp.record(1, 1000)
