"""The lock, the socket of systemd, the journal and the registry: what the supervisor shares with the system."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import msgspec
import pytest
from support.hostfakes import Said, entry_of

from profd.daemon.errors import OutputUnwritable, SessionFailed
from profd.daemon.service.log import SystemdNotifier
from profd.daemon.service.storage import RunRegistry
from profd.daemon.service.supervisor import SingleInstanceLock


def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    first = SingleInstanceLock(tmp_path)
    with pytest.raises(SessionFailed, match=rf"runs already, as pid {os.getpid()} "):
        SingleInstanceLock(tmp_path)
    first.close()
    SingleInstanceLock(tmp_path).close()


def test_the_lock_is_no_link_and_not_for_others(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputUnwritable):
        SingleInstanceLock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "daemon.lock").unlink()
    SingleInstanceLock(tmp_path).close()
    assert stat.S_IMODE((tmp_path / "daemon.lock").stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"\0profd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        notifier = SystemdNotifier()
        notifier.tell("READY=1")
        assert systemd.recv(64) == b"READY=1"
    assert notifier.watchdog_s == 60
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(os.environ)  # no child is to answer
    notifier.tell("WATCHDOG=1")  # nobody listens any more


def test_without_systemd_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = SystemdNotifier()
    notifier.tell("READY=1")
    assert notifier.watchdog_s is None


def test_lines_have_a_level_in_front_where_the_journal_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    plain = Said()
    plain.say("ended", "target-exited", run="r", pid=7)
    (line,) = plain.lines
    assert (line.event, line.message, line.run, line.pid, line.level) == ("ended", "target-exited", "r", 7, "info")
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    leveled = Said()
    leveled.complain("refused", SessionFailed("no", "do this"))
    assert leveled.stream.getvalue().startswith(b'<4>{"time":')


def test_entries_are_kept_from_one_supervisor_to_the_next(profd_home: Path) -> None:
    folder = profd_home / "daemon" / "host"
    entries = [entry_of(7, run=run) for run in (1, 2)]
    for entry in reversed(entries):
        RunRegistry(folder).put(entry)
    assert RunRegistry(folder).entries() == entries
    RunRegistry(folder).remove(entries[0].run_id)
    assert RunRegistry(folder).entries() == entries[1:]
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_what_is_no_entry_is_left_alone(profd_home: Path) -> None:
    registry = RunRegistry(profd_home / "daemon" / "host")
    folder = profd_home / "daemon" / "host"
    entry = entry_of(7)
    (folder / "cut.json").write_bytes(b"{")
    (folder / "other.json").write_bytes(msgspec.json.encode(entry))
    (folder / "latest.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, run_id="latest")))
    assert registry.entries() == []
    assert len(list(folder.iterdir())) == 3
