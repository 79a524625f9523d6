from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from support import hostiletexts
from support.fakesession import FakeRecording
from support.fleets import renamed
from support.hostfakes import FakeTable
from support.hostiletexts import EVIL

from profd.cli import attach, daemon, doctor, dump, ls
from profd.cli.doctor import Check, CheckResult
from profd.cli.main import COMMANDS, run_command_line
from profd.cli.run import sum_up
from profd.daemon.analyze.selection import Selection
from profd.daemon.exports.svg import flame_graph_svg
from profd.daemon.exports.tables import csv_files
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.export import export_run
from profd.daemon.render.plaintext import Paragraph, aligned, cut, fit, visible, visible_json, width
from profd.daemon.session.session import SessionOptions
from profd.daemon.stacks.dump import DumpedFrame, DumpedThread
from profd.daemon.store.reader import RunReader
from profd.daemon.tree.attachable import Attachable
from profd.daemon.tree.tree import DumpedProcess


@given(some.text(), some.integers(0, 30), some.booleans(), some.booleans())
def test_what_is_fitted_takes_exactly_its_cells(
    text: str, cells: int, right: bool, keep_end: bool
) -> None:
    shown = fit(text, cells, right=right, keep_end=keep_end)
    assert shown == visible(shown)
    assert width(shown) == cells
    assert width(cut(text, cells, keep_end=keep_end)) <= cells


def broken(text: str, lead: str = "") -> list[str]:
    return list(Paragraph(text, lead).broken(80))


def test_text_is_cut_by_cells_and_broken_lines_are_indented() -> None:
    assert (width("训练x"), width("e\u0301")) == (5, 1)
    assert cut("训练模型", 5) == "训练…"
    assert cut("训练模型", 4) == "训…"
    assert cut("a/long/path.py:3", 8, keep_end=True) == "…th.py:3"
    assert cut("as it is", 8) == "as it is"
    assert (fit("训", 4), fit("训", 4, right=True), fit("日本語", 4)) == ("训  ", "  训", "日… ")
    assert broken(f"{'word ' * 15}well-known \x1b[1m waits") == [
        f"{'word ' * 14}word",
        "  well-known \\x1b[1m waits",
    ]
    assert broken("word " * 18, "  ▲ ") == [f"  ▲ {'word ' * 14}word", "    word word word"]
    assert broken("", "  ▲ ") == []


@pytest.mark.parametrize(
    "text",
    ["a\nb", "\x1b[31m", "\u202egnol", "a\u2028b", "\u200bhidden", "\ud800", "\U000e0041"],
    ids=ascii,
)
def test_what_cannot_be_seen_is_spelled_out_and_all_else_left_alone(text: str) -> None:
    assert visible(text) == text.encode("unicode_escape").decode() != text
    for seen in ("", "forward", "for x in 数据:", "naïve 😈", "a\u00a0b <b>&amp;</b>", "e\u0301"):
        assert visible(seen) == seen


HIDDEN = set("\u202e\u2066\u2028\x1b\x00")
RUN, FOLDER, DATA, PID = "RUN", "FOLDER", "DATA", "PID"
SPELLED = "\\u202egnol\\u2066"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return hostiletexts.write_run(tmp_path / "a.profd")


@pytest.fixture
def host(run: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all that commands see of this host hostile, too: its processes, their stacks, what
    sessions say.
    """
    runs = profd_home / "runs"
    runs.mkdir()
    (runs / "a.profd").write_bytes(run.read_bytes())
    (runs / f"b{hostiletexts.REORDERING}.profd").write_text("none")

    def start(options: SessionOptions, **_: object) -> FakeRecording:
        started = FakeRecording()(options)
        options.run_file.write_bytes(run.read_bytes())
        return started

    words = ("python", f"{hostiletexts.REORDERING}{EVIL}.py")
    table = FakeTable()
    table.add(4242, *words, torch=True)
    thread = DumpedThread(
        1, EVIL, active=True, owns_gil=True, frames=(DumpedFrame(EVIL, f"/srv/{EVIL}.py", 1),)
    )
    processes = [DumpedProcess(1, words, (thread,), EVIL)]
    monkeypatch.setattr(dump, "dump_tree", lambda pid, native: processes)
    monkeypatch.setattr(ls, "find_attachable", lambda: [Attachable(4242, "3.11", True, 1.0, words)])
    monkeypatch.setattr(daemon, "HostProcesses", lambda: table)
    monkeypatch.setattr(
        doctor, "examine", lambda pid: [Check("target", CheckResult.NOTE, EVIL, EVIL)]
    )
    monkeypatch.setattr(attach, "start_session", start)
    monkeypatch.setattr(attach, "start_ahead", contextlib.nullcontext)
    monkeypatch.setattr("profd.cli.liverun.check_attachable", lambda pid, system: "")


SHOWN = (
    ["summary", RUN],
    ["summary", RUN, "--json"],
    ["export", RUN, "--format", "collapsed"],
    ["export", RUN, "--format", "svg"],
    ["report", RUN, "-o", f"report{hostiletexts.REORDERING}.html"],
    ["diff", RUN, RUN],
    ["diff", RUN, RUN, "--json"],
    ["dump", "4242"],
    ["dump", "4242", "--json"],
    ["ls"],
    ["ls", "--json"],
    ["daemon", "--check"],
    ["doctor"],
    ["stop", RUN],
    ["attach", PID, "--headless"],
    ["window", RUN, "--show"],
    ["window", RUN, "--show", "--json"],
    ["view", FOLDER],
    ["fleet", DATA],
    ["fleet", DATA, "--json"],
)


@pytest.mark.parametrize("cells", [80, 120, 200])
@pytest.mark.usefixtures("host")
def test_texts_keep_to_the_width_of_the_terminal(
    cells: int,
    tmp_path: Path,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("profd.cli.console._PIPED_CELLS", cells)
    data = DataSet(str(tmp_path / "data"))
    with RunReader(run) as reader:
        export_run(reader, data)
    for words in (
        ["summary", str(run)],
        ["diff", str(run), str(run)],
        ["fleet", str(tmp_path / "data")],
        ["doctor"],
    ):
        run_command_line(words)
        said = capsys.readouterr().out
        assert said
        assert max(map(width, said.splitlines())) <= cells, words
    # The table of a window is cut on a terminal alone.
    run_command_line(["window", str(run), "--show"])
    assert (whole := max(map(width, capsys.readouterr().out.splitlines()))) > 120
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run_command_line(["window", str(run), "--show"])
    said = click.unstyle(capsys.readouterr().out)
    assert max(map(width, said.splitlines())) <= min(cells, whole)


@given(some.lists(some.tuples(some.text(max_size=3), some.text(), some.integers(0, 999))))
def test_a_table_is_as_narrow_as_asked_and_never_cuts_what_is_to_be_whole(
    rows: list[tuple[str, str, int]],
) -> None:
    heads = ("id", "what it is", "number")
    cells = [(one, two, str(number)) for one, two, number in rows]
    table = aligned(heads, cells, right=("number",), whole=("id",), cells=50)
    lines = table.split("\n")
    assert max(map(width, lines)) <= 50
    for (one, _, number), line in zip(cells, lines[1:], strict=True):
        assert line.startswith(visible(one))
        assert line.endswith(number)


@pytest.mark.by_user
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_a_terminal_gets_nothing_that_it_would_obey(
    run: Path,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if DATA in command:
        with renamed(run, host=hostiletexts.EVIL) as reader:
            export_run(reader, DataSet(str(tmp_path / DATA)))
    if FOLDER in command:
        (tmp_path / FOLDER).mkdir()
        for name in ("one", "two"):
            hostiletexts.write_run(tmp_path / FOLDER / f"{name}{hostiletexts.REORDERING}.profd")
    meant = {RUN: str(run), PID: str(os.getpid())}
    run_command_line([meant.get(word, word) for word in command])
    said = capsys.readouterr()
    assert not set(said.out + said.err) & HIDDEN
    shown = "".join((said.out + said.err).split())  # a long word may be broken
    assert any(spelled in shown for spelled in (SPELLED, "?gnol?"))


def test_every_command_is_among_these(run: Path) -> None:
    elsewhere = {"run", "demo", "mcp"}  # what answers assistants is in unit/cli/test_mcp.py
    assert {command[0] for command in SHOWN} | elsewhere == set(COMMANDS)
    said = sum_up(run)  # what closes a launch
    assert not set(said) & HIDDEN
    assert SPELLED in said


@pytest.mark.parametrize("text", [EVIL, "\x7f\x9b2J", "\U000e0041", "plain", "\u4e16"])
def test_json_says_the_same_without_what_is_invisible(text: str) -> None:
    shown = visible_json(msgspec.json.encode([text]).decode())
    assert msgspec.json.decode(shown) == [text]
    assert not {character for character in shown if unicodedata.category(character) in ("Cc", "Cf")}


def test_svg_shows_marks_of_direction_and_runs_nothing(run: Path) -> None:
    with RunReader(run) as reader:
        content = flame_graph_svg(reader, Selection())
    root = ElementTree.fromstring(content)
    assert not set("".join(root.itertext())) & HIDDEN
    names = [text for text in root.itertext() if hostiletexts.MARKUP in text]
    assert names
    assert SPELLED in names[0]
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "img", "foreignObject", "a", "image", "use"}
    assert not [
        name for element in root.iter() for name in element.attrib if name.lower().startswith("on")
    ]


def test_csv_keeps_every_name_in_its_cell(run: Path) -> None:
    with RunReader(run) as reader:
        files = csv_files(reader, Selection())
    for name, content in files.items():
        rows = list(csv.reader(io.StringIO(content.decode())))
        assert {len(row) for row in rows} == {len(rows[0])}, name
        assert not set(content.decode()) & HIDDEN, name
    samples = files["samples.csv"].decode()
    assert SPELLED in samples
    assert hostiletexts.WIDE in samples
    assert any(
        hostiletexts.MARKUP in cell for row in csv.reader(io.StringIO(samples)) for cell in row
    )
    assert SPELLED in files["events.csv"].decode()  # a note
