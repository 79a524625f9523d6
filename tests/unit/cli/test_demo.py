"""`profd demo`: which script it launches, and what it says if that cannot run."""

from __future__ import annotations

import importlib.util

import pytest
from support.commandline import CommandLine

from profd.cli import demo
from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode
from profd.daemon.installation import install_extra
from profd.daemon.session.session import SessionOptions


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else found(name, *rest),
    )


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[SessionOptions]:
    """Return the sessions that a demo asks for; none is begun, and each ends with 7."""
    asked: list[SessionOptions] = []

    def launch(options: SessionOptions, *_: object, **__: object) -> int:
        asked.append(options)
        return 7

    monkeypatch.setattr(demo, "run_profiled", launch)
    return asked


@pytest.mark.usefixtures("without_torch")
def test_missing_torch_is_answered_with_the_command_that_installs_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["demo", "--headless", "simple_net"]) == ExitCode.MISSING_TOOL
    said = capsys.readouterr().err
    remedy = install_extra("demo")
    assert said == f"profd: the demo needs torch, not installed beside profd: {remedy}\n"


@pytest.mark.usefixtures("without_torch")
def test_the_script_that_needs_no_torch_is_the_default_without_it(
    profd: CommandLine, launched: list[SessionOptions]
) -> None:
    profd("demo", "--headless", code=7)
    assert launched[0].command[1:] == (str(demo.target_path("digits")), "--steps", "400")


@pytest.mark.parametrize(
    ("words", "name", "arguments"),
    [
        ((), "cifar_resnet18", ()),
        (("simple_net",), "simple_net", ()),
        (("--", "--steps", "5"), "cifar_resnet18", ("--steps", "5")),
        (("simple_net", "--", "--steps", "5"), "simple_net", ("--steps", "5")),
    ],
)
def test_the_script_that_is_named_is_launched_with_its_arguments_and_its_exit_code_is_the_demos(
    profd: CommandLine,
    launched: list[SessionOptions],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    name: str,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setattr(demo, "_NEEDED", ())
    profd("demo", "--headless", *words, code=7)
    assert launched[0].command[1:] == (
        str(demo.target_path(name)),
        *demo.TARGET_ARGUMENTS[name],
        *arguments,
    )
    text = profd("demo", "--headless", "resnet", code=ExitCode.USAGE)
    assert "there is no demo resnet: it is one of: cifar_resnet18, simple_net, digits" in text
