from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from profd.daemon.errors import OutputUnwritable
from profd.daemon.paths import write_whole


def test_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")
    write_whole(target, b"new")
    assert target.read_text() == "new"


def test_link_is_followed_and_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputUnwritable, match="No space left"):
        write_whole(target, b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_pipe_is_written_to(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    write_whole(Path(f"/dev/fd/{write_fd}"), b"new")
    assert os.read(read_fd, 10) == b"new"
    os.close(read_fd)
    os.close(write_fd)


def test_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputUnwritable, match="Is a directory"):
        write_whole(tmp_path, b"new")
