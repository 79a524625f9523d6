"""`docs/commands.md` says what is so: commands, options and exit codes."""

from __future__ import annotations

import re

import pytest
from support.folders import DOCS

from profd.cli.main import COMMANDS, load_command
from profd.daemon.errors import ExitCode

PAGE = (DOCS / "commands.md").read_text()


def test_every_exit_code_is_documented_by_number_and_name() -> None:
    documented = {(int(code), name) for code, name in re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)}
    assert documented == {(code.value, code.name) for code in ExitCode}


def test_every_command_is_documented() -> None:
    assert re.findall(r"^\| `profd (\w+)", PAGE, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", ["attach", "summary", "export", "diff", "fleet"])
def test_every_option_is_documented(name: str) -> None:
    command = load_command(name)
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert [option for option in options if option not in PAGE] == []
