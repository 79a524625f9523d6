"""Installed as users do: the wheel of the sdist, in a fresh environment, attaches to a program of
another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support.folders import ROOT
from support.interpreters import OWN_VERSION, VERSIONS, find_python
from support.waiting import DEADLINE_S

SOURCES = (
    "cli",
    "daemon",
    "target",
    "tui",
    "src",
    "packaging",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
BUILD_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
ENDINGS = frozenset({".py", ".sql", ".toml", ".j2", ".js", ".css", ".tcss", ".typed"})
PROGRAM = """
import sys, time
def brood():
    print("ready", flush=True)
    time.sleep(600)
print(sorted(name for name in ("profd", "torch") if __import__("importlib.util").util.find_spec(name)), flush=True)
brood()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist of a copy of the tree, and the wheel of that sdist alone."""
    folder = tmp_path_factory.mktemp("built")
    copy = folder / "tree"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info")
            )
        else:
            shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "-c", BUILD_SDIST, str(folder), cwd=copy)
    (sdist,) = folder.glob("*.tar.gz")
    words = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *words, str(sdist))
    (made,) = folder.glob("*.whl")
    return made


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=10 * DEADLINE_S)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def other_python() -> str:
    """Return a Python that is not the one of these tests: another version where there is one."""
    others = [
        found for version in VERSIONS if version != OWN_VERSION and (found := find_python(version))
    ]
    return others[-1] if others else "/usr/bin/python3"


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    held = {name.removeprefix("profd/") for name in zipfile.ZipFile(wheel).namelist()}
    files = (
        path
        for name in ("cli", "daemon", "target", "tui")
        for path in (ROOT / name).rglob("*")
        if path.is_file()
    )
    wanted = {str(path.relative_to(ROOT)) for path in files if path.suffix in ENDINGS}
    assert wanted - held == set()


def test_it_attaches_to_a_program_of_another_environment(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=True)
    install = [f"{fresh}/bin/pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    installed = subprocess.run(install, capture_output=True, text=True, timeout=10 * DEADLINE_S)
    if installed.returncode and not os.environ.get("CI"):
        pytest.skip(f"no package index answers: {installed.stderr.strip()[-200:]}")
    assert installed.returncode == 0, installed.stderr[-2000:]
    profd = str(fresh / "bin" / "profd")
    away = {**os.environ, "PROFD_HOME": str(tmp_path / "home")}
    away.pop("PYTHONPATH", None)
    with subprocess.Popen(
        [other_python(), "-I", "-S", "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "[]\n"  # neither profd nor torch is there
            assert program.stdout.readline() == "ready\n"
            run_file = tmp_path / "a.profd"
            attach = [
                profd,
                "attach",
                str(program.pid),
                "--headless",
                "--duration",
                "3",
                "-o",
                str(run_file),
            ]
            attached = subprocess.run(
                attach, capture_output=True, text=True, env=away, timeout=2 * DEADLINE_S
            )
            assert attached.returncode == 0, attached.stderr
            assert program.poll() is None
        finally:
            program.kill()
    export = [profd, "export", str(run_file), "-o", str(tmp_path / "out"), "--format"]
    subprocess.run([*export, "collapsed"], check=True, env=away)
    assert "brood" in (tmp_path / "out").read_text()
    metrics = subprocess.run([*export, "parquet"], capture_output=True, text=True, env=away)
    assert metrics.returncode != 0
    assert " install " in metrics.stderr
    assert "'pyarrow>=" in metrics.stderr
    assert "Traceback" not in metrics.stderr
