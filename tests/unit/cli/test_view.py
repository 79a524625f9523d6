"""`profd view`: which run the dashboard is opened on, and what is said where it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.commandline import CommandLine
from support.synthetic import write_run

from profd.cli import view
from profd.daemon.errors import ExitCode


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    opened: list[object] = []

    def run_dashboard(run_file: Path, *, keys_fd: int | None, may_end: bool) -> None:
        opened.append((run_file, keys_fd, may_end))

    monkeypatch.setitem(sys.modules, "profd.tui.app", SimpleNamespace(run_dashboard=run_dashboard))
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(view, "sys", SimpleNamespace(stdin=terminal, stderr=terminal))
    monkeypatch.setattr(view, "can_move_cursor", lambda: True)
    return opened


def test_view_opens_a_dashboard_that_does_not_end_the_recording(
    opened: list[object], tmp_path: Path, profd: CommandLine
) -> None:
    path = write_run(tmp_path / "a.profd", seconds=1)
    profd("view", path)
    profd("view", path, "--keys-fd", 7)
    (tmp_path / "notes.profd").write_text("no run")
    profd("view", tmp_path / "notes.profd", code=ExitCode.UNREADABLE_RUN)
    assert opened == [(path, None, False), (path, 7, False)]


def test_of_several_nodes_one_is_chosen_from_the_list(
    opened: list[object], folder: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    monkeypatch.setattr(
        "click.prompt", lambda *_, **options: options["type"].convert("1", None, None)
    )
    assert [line.split() for line in profd("view", folder).splitlines()] == [
        ["node", "host", "ranks", "file"],
        ["0", "node0", "0", str(folder / "0.profd")],
        ["1", "node1", "1", str(folder / "1.profd")],
    ]
    assert opened == [(folder / "1.profd", None, False)]


def test_a_terminal_that_cannot_move_its_cursor_gets_no_dashboard(
    opened: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profd: CommandLine
) -> None:
    monkeypatch.setattr(view, "can_move_cursor", lambda: False)
    profd("view", write_run(tmp_path / "a.profd", seconds=1), code=ExitCode.USAGE)
    assert "move its cursor" in profd.err
    assert opened == []
