"""What tests of commands have."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from support.commandline import CommandLine
from support.noderuns import write_folder


@pytest.fixture
def profd(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder of a job on two nodes."""
    return write_folder(tmp_path / "job")


@pytest.fixture
def url(folder: Path) -> str:
    """Give the URL of this folder, with something beside the runs."""
    url = f"memory://{folder.parent.name}/job"
    files, root = fsspec.core.url_to_fs(url)
    files.makedirs(root)
    for path in folder.iterdir():
        files.put_file(str(path), f"{root}/{path.name}")
    files.pipe_file(f"{root}/notes.txt", b"no run")
    return url


@pytest.fixture
def runs(profd_home: Path) -> Path:
    """Give the folder of this home's runs, without any."""
    (profd_home / "runs").mkdir()
    return profd_home / "runs"
