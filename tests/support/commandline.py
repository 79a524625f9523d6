"""The command line, run in the test's own process."""

from __future__ import annotations

import pytest

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode


class CommandLine:
    """Runs commands; ``out`` and ``err`` are what the last one said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object, code: int = ExitCode.OK) -> str:
        """Run a command that ends with this code, and return its output, or why it failed."""
        assert run_command_line([str(word) for word in words]) == code, words
        self.out, self.err = self._capsys.readouterr()
        return self.out if code == ExitCode.OK else self.err
