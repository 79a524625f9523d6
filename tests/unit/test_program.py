"""How programs of profd are started, and what they find of what was set for the script's Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.folders import ROOT

from profd.daemon import program

MODULES = ("click", "msgspec", "re", "runpy", "select", "sitecustomize", "struct", "usercustomize")


@pytest.fixture
def of_the_script(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which modules of the script's stand in for those that profd imports."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('the {name} of the script')")
    return {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONVERBOSE": "1", "PYTHONINSPECT": "1"}


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """Return the shell script `profd`, as an installer would lay it beside its Python."""
    (tmp_path / "bin").mkdir()
    installed = tmp_path / "bin" / "profd"
    installed.write_bytes((ROOT / "packaging" / "command" / "profd").read_bytes())
    installed.chmod(0o755)
    return installed


@pytest.fixture
def python(command: Path) -> Callable[[str], None]:
    """Return a function that puts a shell script in the place of the Python of the installed
    command.
    """

    def install(script: str) -> None:
        stand_in = command.with_name("python3")
        stand_in.write_text(f"#!/bin/sh\n{script}\n")
        stand_in.chmod(0o755)

    return install


def test_a_program_of_profds_finds_nothing_that_was_set_for_the_script(
    of_the_script: dict[str, str],
) -> None:
    words = program.words("profd.daemon.rights", "/bin/echo", "became another")
    ended = subprocess.run(
        words, env=of_the_script, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "became another\n", "")


def test_the_command_line_started_as_a_module_starts_itself_anew(
    of_the_script: dict[str, str],
) -> None:
    """What Python reads before its first line is lost then, and no more than that."""
    environment = {**of_the_script, "PYTHONPATH": "", "PYTHONVERBOSE": ""}
    words = [sys.executable, "-m", "profd", "--version"]
    ended = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_programs_come_from_the_folder_of_whoever_starts_them(tmp_path: Path) -> None:
    """It may be found by PYTHONPATH, or be installed for one user: isolated, Python looks in
    neither.
    """
    package = tmp_path / "profd"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_bytes((ROOT / "src" / "profd" / "__main__.py").read_bytes())
    (package / "other.py").write_text("import sys; print(__name__, sys.argv[1:], __file__)")
    words = [sys.executable, "-I", str(package / "__main__.py"), "-m", "profd.other", "a", "-m"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stdout == f"__main__ ['a', '-m'] {package / 'other.py'}\n"


def test_libraries_that_are_loaded_into_each_process_are_not_for_profds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LD_PRELOAD", "LD_DEBUG", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "set")
    assert set(os.environ) - set(program.environment()) == {"LD_PRELOAD", "LD_DEBUG"}


def test_the_command_starts_an_isolated_python_before_it_reads_anything(
    command: Path, python: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "noise").write_text("echo noise")
    python('echo "$1 $3 $4"; echo "$2" | grep -qx -e "-Xprofd_ignored=[0-9a-f]*"')
    environment = {
        "PYTHONHOME": "/nowhere",
        "BASH_ENV": str(tmp_path / "noise"),
        "BASH_FUNC_exec%%": "() { exit 3; }",
    }
    ended = subprocess.run([command, "run"], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"-I {command} run\n", "")


def test_the_command_starts_the_python_that_its_installer_named(
    command: Path, python: Callable[[str], None], tmp_path: Path
) -> None:
    python("echo the wrong one")
    named = tmp_path / "python3.13"
    named.write_text('#!/bin/sh\necho "$1"\n')
    named.chmod(0o755)
    command.with_name("profd-python").write_text(f"#!{named} -E\n")
    (tmp_path / "link").symlink_to(command)  # as pipx and uv make it
    assert subprocess.run([tmp_path / "link"], capture_output=True, text=True).stdout == "-I\n"


def test_a_python_that_is_gone_is_named(command: Path) -> None:
    ended = subprocess.run([command, "ls"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (
        1, f"profd: {command.with_name('python3')}, which runs profd, is missing: install profd "
           "again\n"
    )  # fmt: skip


_ASKED = """
import os, sys
from profd.daemon import program
before = program.inherited_environment()
program.take_over()
print(before, sorted(os.environb.items()), sorted(program.ignored_signals() or ()))
"""


def answer(environment: dict[bytes, bytes], *options: str) -> str:
    words = [
        sys.executable,
        *options,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}){_ASKED}",
    ]
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_what_the_shell_found_is_what_was_inherited() -> None:
    found = [b"B=2", b"A.B=\xff\n", b"=x=y", b"B=2", b"alone"]
    handed = {b"PROFD_ENTRY_%d" % number: entry for number, entry in enumerate(found)}
    known = [
        (b"A.B", b"\xff\n"),
        (b"B", b"2"),
    ]
    of_bash = {b"SHLVL": b"1", b"PWD": b"/", b"LC_ALL": b"C"}
    assert answer({**of_bash, **handed}, "-I", "-Xprofd_ignored=0000000001001004") == (
        f"{found} {known} [3, 13, 25]"
    )


def test_without_the_shell_it_is_what_python_found_before_it_set_a_locale() -> None:
    assert answer({b"LC_ALL": b"", b"A": b"1"}, "-I").startswith("[b'LC_ALL=', b'A=1'] ")
    assert answer({b"A": b"1"}, "-I").endswith(" []")
