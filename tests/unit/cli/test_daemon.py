"""`profd daemon --check`: what the configuration says, and what it would record.

The supervisor: tests/unit/host.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commandline import CommandLine
from support.hostfakes import FakeTable

from profd.cli import daemon
from profd.daemon.errors import ExitCode
from profd.daemon.processes import user_name
from profd.daemon.service.configuration import Configuration


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> FakeTable:
    table = FakeTable()
    monkeypatch.setattr(daemon, "HostProcesses", lambda: table)
    return table


def checked(profd: CommandLine, *words: object) -> tuple[dict[str, object], str]:
    """Return the configuration that was understood, and what follows it."""
    out = profd("daemon", "--check", *words)
    values, end = json.JSONDecoder().raw_decode(out)
    return values, out[end:]


def test_defaults_a_file_at_its_usual_place_or_one_that_is_named_are_shown(
    table: FakeTable, profd_home: Path, tmp_path: Path, profd: CommandLine
) -> None:
    values, rest = checked(profd)
    assert (values["rate_hz"], values["at_exit"]) == (Configuration().rate_hz, "leave")
    assert (
        f"at most {Configuration().most_sessions} sessions at a time, in {profd_home / 'runs'}"
        in rest
    )
    assert rest.endswith("No process that runs now meets a rule.\n")
    (profd_home / "daemon.toml").write_text("rate_hz = 30\n")
    assert checked(profd)[0]["rate_hz"] == 30
    (tmp_path / "other.toml").write_text("rate_hz = 40\n")
    assert checked(profd, "--config", tmp_path / "other.toml")[0]["rate_hz"] == 40


def test_processes_that_meet_a_rule_are_listed_without_their_secrets(
    table: FakeTable, profd: CommandLine
) -> None:
    table.add(10, "python", "train.py", "--token=s3cret", torch=True)
    table.add(11, "python", "serve.py")
    table.add(12, "python", "long.py", "x" * 100, torch=True)
    _, rest = checked(profd)
    assert "Processes that meet a rule" in rest
    rows = [
        line.split() for line in rest.splitlines() if line.split()[:1] in (["10"], ["11"], ["12"])
    ]
    assert [row[:3] for row in rows] == [
        [pid, user_name(table.subjects[int(pid)].uid), "torch"] for pid in ("10", "12")
    ]
    assert "s3cret" not in rest
    assert rows[1][-1].endswith("xx…")


@pytest.mark.parametrize("content", ["rate_hz = 0\n", "rate = 20\n", "rate_hz = \n"])
def test_a_file_that_is_wrong_ends_the_command(
    content: str, tmp_path: Path, profd: CommandLine
) -> None:
    (tmp_path / "wrong.toml").write_text(content)
    assert "wrong.toml" in profd(
        "daemon", "--check", "--config", tmp_path / "wrong.toml", code=ExitCode.USAGE
    )
    assert profd.out == ""
