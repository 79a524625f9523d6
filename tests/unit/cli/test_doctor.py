"""`profd doctor`: what it prints of its checks, and the exit code that follows from them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from click.testing import CliRunner
from support.fakesystem import FakeProcess, FakeSystem
from support.folders import ROOT
from support.gpusim import SimulatedDriver

from profd.cli import doctor
from profd.cli.doctor import Check, CheckResult, check_gpus, checked
from profd.daemon import paths, processes
from profd.daemon.errors import ExitCode, SessionFailed
from profd.daemon.gpu import nvml
from profd.daemon.stacks.pyspy import KNOWN_VERSIONS


def report(checks: list[Check], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """Return exit code and output of ``profd doctor`` on a machine with these checks."""
    monkeypatch.setattr(doctor, "examine", lambda pid: checks)
    ended = CliRunner().invoke(doctor.command, words, standalone_mode=False)
    return ended.return_value, ended.stdout


def test_failures_count_and_notes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = report(
        [Check("a", CheckResult.PASSED, "fine"), Check("b", CheckResult.NOTE, "so so", "mend it")],
        monkeypatch,
    )
    assert code == 0
    assert "✓ a" in text
    assert "! b" in text
    assert "→ mend it" in text
    assert report([Check("a", CheckResult.FAILED, "broken")], monkeypatch)[0] == ExitCode.FAILURE
    process = Check("pid 1", CheckResult.FAILED, "a shell", exit_code=ExitCode.NOT_PYTHON)
    assert (
        report([Check("a", CheckResult.FAILED, "broken"), process], monkeypatch)[0]
        == ExitCode.NOT_PYTHON
    )
    _, text = report([Check("a", CheckResult.PASSED, "fine")], monkeypatch, "--json")
    assert [check["name"] for check in json.loads(text)] == ["a", "terminal"]


def test_machine_that_runs_these_tests_is_fit_and_every_note_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = doctor.examine()
    assert [check for check in checks if check.verdict is CheckResult.FAILED] == []
    assert [
        check for check in checks if check.verdict is not CheckResult.PASSED and not check.remedy
    ] == []
    (wanted,) = re.findall(
        r'^ *"(py-spy[^"]*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    least, beyond = (".".join(map(str, version)) for version in KNOWN_VERSIONS)
    assert sorted(re.findall(r"[<>]=?[\d.]+", wanted)) == [f"<{beyond}", f">={least}"]
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 7, 17))
    assert checked("", doctor.check_python).verdict is CheckResult.FAILED


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        *((f"py-spy {version}", CheckResult.PASSED) for version in ("0.4.3", "0.4.99")),
        *(
            (f"py-spy {version}", CheckResult.NOTE)
            for version in ("0.3.14", "0.4.2", "0.5.0", "1.0.0")
        ),
        ("", CheckResult.NOTE),
    ],
)
def test_a_py_spy_that_is_not_known_is_worth_a_note(
    said: str, verdict: CheckResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    py_spy = tmp_path / "py-spy"
    py_spy.write_text(f"#!/bin/sh\necho {said}\n")
    py_spy.chmod(0o755)
    monkeypatch.setenv("PROFD_PY_SPY", str(py_spy))
    check = checked("", doctor.check_py_spy)
    assert check.verdict is verdict
    assert verdict is CheckResult.PASSED or "from 0.4.3 on, before 0.5" in check.remedy
    monkeypatch.setenv("PROFD_PY_SPY", str(tmp_path / "none"))
    check = checked("", doctor.check_py_spy)
    assert (check.verdict, check.exit_code) == (CheckResult.FAILED, ExitCode.MISSING_TOOL)


@pytest.mark.parametrize(
    ("scope", "capable", "verdict"),
    [
        (0, False, CheckResult.PASSED),
        (1, True, CheckResult.PASSED),
        (1, False, CheckResult.NOTE),
        (2, False, CheckResult.NOTE),
    ],
)
def test_rights_follow_ptrace_scope_and_capability(
    scope: int, capable: bool, verdict: CheckResult
) -> None:
    assert (
        checked("", doctor.check_attaching, FakeSystem({}, scope=scope, capable=capable)).verdict
        is verdict
    )


def test_the_runs_folder_needs_rights_room_and_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:  # a folder that is missing is judged by its parent
        elsewhere.setenv("PROFD_HOME", str(tmp_path / "not" / "yet"))
        assert checked("", doctor.check_runs_folder).verdict is CheckResult.PASSED
        assert not (tmp_path / "not").exists()
        usage = SimpleNamespace()
        elsewhere.setattr(shutil, "disk_usage", lambda path: usage)
        for usage.free, verdict in (
            (1 << 40, CheckResult.PASSED),
            (100 << 20, CheckResult.NOTE),
            (1 << 20, CheckResult.FAILED),
        ):
            assert checked("", doctor.check_runs_folder).verdict is verdict
    monkeypatch.setattr(paths, "is_on_network", lambda path: True)
    assert checked("", doctor.check_runs_folder).verdict is CheckResult.NOTE
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check = checked("", doctor.check_runs_folder)
    assert (check.verdict, check.exit_code) == (CheckResult.FAILED, ExitCode.UNWRITABLE_OUTPUT)
    assert "PROFD_HOME" in check.remedy


def test_process_is_judged_by_the_ladder() -> None:
    system = FakeSystem(
        {1: FakeProcess(), 2: FakeProcess("bash", executable="/bin/bash", python=None)}
    )
    assert checked("", doctor.check_process, 1, system).verdict is CheckResult.PASSED
    assert checked("", doctor.check_process, 2, system).exit_code is ExitCode.NOT_PYTHON


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("2.13.0+cpu", CheckResult.PASSED), ("1.13.1", CheckResult.NOTE), ("", CheckResult.NOTE)],
)
def test_torch_is_judged_by_its_version(
    version: str, verdict: CheckResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version_of(name: str) -> str:
        if not version:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", version_of)
    check = checked("", doctor.check_torch)
    assert (check.verdict, version in check.found) == (verdict, True)


@pytest.mark.parametrize(
    ("maps", "variables", "verdict", "words"),
    [
        (
            b"/x/libtorch_cpu.so\n",
            b"KINETO_IPC_SOCKET_DIR=/tmp/profd-7/w1\0",
            CheckResult.PASSED,
            "was launched with",
        ),
        (b"/x/libtorch_cpu.so\n", b"A=1\0", CheckResult.NOTE, "was launched without"),
        (
            b"/x/libtorch_cpu.so\n",
            b"KINETO_IPC_SOCKET_DIR=/tmp/dynolog\0",
            CheckResult.NOTE,
            "was launched without",
        ),
        (b"/x/libc.so\n", b"A=1\0", CheckResult.NOTE, "has not loaded torch"),
        (None, b"", CheckResult.NOTE, "does not show"),
    ],
)
def test_torch_of_a_process(
    maps: bytes | None,
    variables: bytes,
    verdict: CheckResult,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {"/proc/7/maps": maps, "/proc/7/environ": variables}
    monkeypatch.setattr(processes, "read", files.get)
    check = checked("", doctor.check_torch_of, 7)
    assert check.verdict is verdict
    assert words in check.found


def test_gpus_are_named_with_their_driver_and_what_it_can(driver: SimulatedDriver) -> None:
    check = checked("GPUs", check_gpus, FakeSystem({}))
    assert (check.verdict, check.found) == (
        CheckResult.NOTE,
        "a driver, but no GPU that may be used",
    )
    driver.add("driver_version", "560.35")
    driver.add_gpu("gpu0")
    driver.add_gpu("gpu1", model="NVIDIA A100-SXM4-40GB")
    found = "2: NVIDIA H100 80GB HBM3, NVIDIA A100-SXM4-40GB; driver 560.35, with{} GPM metrics"
    assert checked("GPUs", check_gpus, FakeSystem({})) == Check(
        "GPUs", CheckResult.PASSED, found.format("out")
    )
    driver.add("gpm", 5, "gpu0", 5)
    assert checked("GPUs", check_gpus, FakeSystem({})).found == found.format("")
    driver.add("driver_error", 18)
    check = checked("GPUs", check_gpus, FakeSystem({}))
    assert check.verdict is CheckResult.NOTE
    assert "different versions" in check.found
    assert "reboot" in check.remedy


def test_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(nvml, "has_driver", lambda: False)
    monkeypatch.setattr(nvml, "has_gpu", lambda: False)
    check = checked("GPUs", check_gpus, FakeSystem({}))
    assert (check.verdict, check.found) == (CheckResult.NOTE, "no NVIDIA driver here")
    assert "all else works without it" in check.remedy


def test_what_proc_does_not_show_of_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_OF_THE_MACHINE", ("self", "nothing-of-the-kind"))
    verdict, found, *remedy = doctor.check_kernel()
    assert (verdict, found.endswith("/proc lacks nothing-of-the-kind")) == (doctor.NOTE, True)
    assert "subset=pid" in str(remedy)


def test_a_session_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(options: object) -> None:
        raise SessionFailed("the recording session did not start", "see its log")

    monkeypatch.setattr(doctor, "start_session", refuse)
    check = doctor.checked("session", doctor.check_session)
    assert (check.verdict, check.found) == (doctor.FAILED, "the recording session did not start")
