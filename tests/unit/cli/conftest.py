"""What tests of commands have."""

from __future__ import annotations

from pathlib import Path

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
def runs(profd_home: Path) -> Path:
    """Give the folder of this home's runs, without any."""
    (profd_home / "runs").mkdir()
    return profd_home / "runs"
