"""`profd doctor`: what it prints of its checks, and the exit code that follows from them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from profd.cli import doctor
from profd.cli.doctor import Check, Verdict
from profd.daemon.errors import ExitCode


def report(checks: list[Check], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """Return exit code and output of ``profd doctor`` on a machine with these checks."""
    monkeypatch.setattr(doctor, "examine", lambda pid: checks)
    ended = CliRunner().invoke(doctor.command, words, standalone_mode=False)
    return ended.return_value, ended.stdout


def test_notes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = report([Check("a", Verdict.PASSED, "fine"), Check("b", Verdict.NOTE, "so so", "mend it")], monkeypatch)
    assert code == 0
    assert "✓ a" in text
    assert "! b" in text
    assert "→ mend it" in text


def test_failure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report([Check("a", Verdict.FAILED, "broken")], monkeypatch)[0] == ExitCode.FAILURE


def test_failure_of_the_process_asked_about_counts_most(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Check("pid 1", Verdict.FAILED, "a shell", exit_code=ExitCode.NOT_PYTHON)
    assert report([Check("a", Verdict.FAILED, "broken"), process], monkeypatch)[0] == ExitCode.NOT_PYTHON


def test_json_names_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = report([Check("a", Verdict.PASSED, "fine")], monkeypatch, "--json")
    assert [check["name"] for check in json.loads(text)] == ["a", "terminal"]
