from __future__ import annotations

import importlib.util

import pytest

from profd.cli import run
from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode, UsageError
from profd.daemon.session.session import SessionOptions


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ((), ("cifar_resnet18", ())),
        (("simple_net",), ("simple_net", ())),
        (("--steps", "5"), ("cifar_resnet18", ("--steps", "5"))),
        (("simple_net", "--steps", "5"), ("simple_net", ("--steps", "5"))),
    ],
)
def test_words_name_a_target_and_its_arguments(words: tuple[str, ...], meant: tuple[str, tuple[str, ...]]) -> None:
    assert run.split_words(words) == meant


def test_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no demo resnet: it is one of: cifar_resnet18, simple_net"):
        run.split_words(("resnet",))


@pytest.mark.parametrize("name", run.TARGET_ARGUMENTS)
def test_each_target_is_bundled(name: str) -> None:
    assert run.target_path(name).is_file()


def test_missing_torch_is_answered_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest)
    )
    assert run_command_line(["demo", "--headless"]) == ExitCode.MISSING_TOOL
    said = capsys.readouterr().err
    assert said == "profd: the demo needs torch, not installed beside profd: pip install 'profd[demo]'\n"


def test_the_script_is_launched_with_its_arguments_and_its_exit_code_is_the_demos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[SessionOptions] = []

    def launch(options: SessionOptions, **_: object) -> int:
        asked.append(options)
        return 7

    monkeypatch.setattr(run, "run_profiled", launch)
    monkeypatch.setattr(run, "_NEEDED", ())
    assert run_command_line(["demo", "--headless", "simple_net", "--", "--steps", "0"]) == 7
    (options,) = asked
    assert options.command[1:] == (
        str(run.target_path("simple_net")), *run.TARGET_ARGUMENTS["simple_net"], "--steps", "0"
    )  # fmt: skip
