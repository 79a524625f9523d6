"""Entries of runs that the supervisor began: whole, its own, and gone with their run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from profd.daemon.errors import OutputUnwritable
from profd.daemon.service.storage import Entry, RunRegistry, boot_id
from profd.daemon.store.records import Identity

ENTRY = Entry("20261120-120000-cifar-3fa9", Identity(4242, 1000), 4242, "any", boot_id(), 5)


def test_entries_come_back_the_oldest_first(tmp_path: Path) -> None:
    registry = RunRegistry(tmp_path / "daemon" / "host")
    later = msgspec.structs.replace(ENTRY, run_id="20261121-120000-cifar-3fa9")
    registry.put(later)
    registry.put(ENTRY)
    assert registry.entries() == [ENTRY, later]
    registry.remove(later.run_id)
    assert registry.entries() == [ENTRY]


def test_an_entry_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = RunRegistry(tmp_path / "daemon" / "host")
    registry.put(ENTRY)

    def write_nothing(value: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(msgspec.json, "encode", write_nothing)
    with pytest.raises(OutputUnwritable, match="No space left"):
        registry.put(msgspec.structs.replace(ENTRY, ended_ns=9))
    assert registry.entries() == [ENTRY]


def test_a_file_that_is_no_entry_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "daemon" / "host"
    registry = RunRegistry(folder)
    (folder / "notes.json").write_text("{}")
    (folder / "other.json").write_bytes(msgspec.json.encode(ENTRY))
    assert registry.entries() == []
    assert len(list(folder.iterdir())) == 2
