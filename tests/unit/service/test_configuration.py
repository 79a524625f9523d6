"""The supervisor's configuration: what it says, and every way to say it wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.folders import DOCS

from profd.daemon.errors import UsageError
from profd.daemon.service.configuration import Configuration, Exclusion, decode, read_configuration

PAGE = (DOCS / "daemon.md").read_text()


def understood(text: str) -> Configuration:
    return decode(text.encode(), "daemon.toml")


def test_an_empty_file_and_the_documented_one_are_the_defaults() -> None:
    assert understood("") == Configuration()
    (documented,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert understood(documented) == Configuration()
    with pytest.raises(UsageError, match="cannot be read"):
        read_configuration(Path("/nowhere/daemon.toml"))


def test_rules_and_exclusions_are_read_in_order() -> None:
    found = understood("""
        budget_percent = 7
        [[rule]]
        command = 'train'
        users = ["ada", "1001"]
        [[rule]]
        gpu = true
        [[exclude]]
        command = "jupyter"
    """)
    assert [(rule.command, rule.gpu, rule.users) for rule in found.rule] == [
        ("train", False, ("ada", "1001")),
        ("", True, ()),
    ]
    assert found.exclude == (Exclusion(command="jupyter"),)
    assert found.most_sessions == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rate = 20", "unknown field `rate`: did you mean rate_hz?"),
        ("[retention]\nhours = 2", "unknown field `hours` - at `$.retention`"),
        (
            "[[rule]]\ntorch = true\n[[rule]]\ncomand = 'x'",
            "unknown field `comand` - at `$.rule[1]`: did you mean command?",
        ),
        ("rate_hz = 'fast'", "Expected `int`, got `str`"),
        ("rate_hz = 0", "`int` >= 1"),
        ("rate_hz = ", "is no TOML"),
        ("[[rule]]\nname = 'all'", "rule 1: it would meet every Python"),
        ("[[exclude]]", "exclude 1: it would meet everything"),
        ("[[rule]]\ncommand = '('", "rule 1: '(' is no regular expression"),
        ("folder = 'runs'", "folder runs is no absolute path"),
        ("least_percent = 20", "least_percent is more than budget_percent"),
        ("at_exit = 'kill'", "at_exit"),
        ("metrics = 'here'", "metrics"),
        ("otlp = 'localhost'", "otlp"),
        ("rule = 'torch'", "Expected `array`"),
        ("xyzzy = 1", "unknown field `xyzzy`: docs/daemon.md shows what it holds"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        understood(text)
    assert complaint in str(caught.value)


@pytest.mark.requires("root")
@pytest.mark.parametrize(("uid", "mode"), [(65534, 0o644), (0, 0o664), (0, 0o646)])
def test_root_does_not_heed_a_file_that_others_may_write(
    tmp_path: Path, uid: int, mode: int
) -> None:
    file = tmp_path / "daemon.toml"
    file.write_text("rate_hz = 30\n")
    assert read_configuration(file).rate_hz == 30
    os.chown(file, uid, 0)
    file.chmod(mode)
    with pytest.raises(UsageError, match="may be written by others than root"):
        read_configuration(file)
