"""Installed as users do: the wheel of the sdist, in a fresh environment, attaches to a program of
another one.
"""

from __future__ import annotations

import os
import re
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
RIGHTLY_USED = """
from __future__ import annotations
from pathlib import Path
import profd

def of(run: profd.Run, other: profd.Run, words: profd.Selectors) -> list[object]:
    findings: profd.Rows[profd.Finding] = run.findings_in(from_=1, to="12:00:00")
    first: profd.Finding = findings[0]
    some: profd.Rows[profd.Finding] = run.findings[1:3]
    shares: list[float] = [phase.share for phase in run.phases]
    lines: list[int] = [phase.line.line for phase in run.phases if phase.line is not None]
    title: str = first.title
    begun: int = run.info.started_ns
    path: Path = run.path
    steps: profd.Steps = run.steps
    processes: profd.Rows[profd.ProcessSummary] = run.processes
    summary: profd.Summary = run.summary(rank=0, process=1, thread="a", phase="forward", when=["on-cpu"])
    hot: profd.Rows[profd.FunctionRow] = run.lines(gpus=False, gpu_idle=True)
    seconds: float = sum(stack.seconds for stack in run.stacks(main_threads=False, **words))
    peak: float = max(point.value for point in run.metrics("rss_bytes", gpu_idle=5))
    frames: tuple[str, ...] = run.stacks()[0].frames
    since_s: list[float] = [hang.since_s for hang in run.hangs()]
    difference: profd.Diff = run.diff(other, least=0.1, to=60)
    live: profd.Live | None = run.live
    length_s: float = 0 if live is None else live.length_s
    known: list[profd.ListedRun] = profd.list_runs()
    return [some, shares, lines, title, begun, path, steps, processes, summary, hot, seconds, peak, frames, since_s,
            difference, length_s, known]

try:
    with profd.open_run("latest") as run, profd.open_run(Path("a.profd"), job=None) as other:
        print(of(run, other, {"from_": 10, "to": None}))
except profd.ProfdError as error:
    what: str = error.what
    remedy: str = error.remedy
"""
WRONGLY_USED = """
import profd
with profd.open_run(3) as run:
    run.lines(rang=0)
    run.summary(rank="0")
    title: int = run.findings[0].title
    profd.nothing
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


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the programs of a fresh environment with the wheel."""
    fresh = tmp_path_factory.mktemp("installed") / "fresh"
    venv.create(fresh, with_pip=True)
    install = [f"{fresh}/bin/pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=10 * DEADLINE_S)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"no package index answers: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    return fresh / "bin"


@pytest.mark.parametrize(
    "checker",
    [
        pytest.param((sys.executable, "-m", "mypy", "--strict", "--python-executable"), id="mypy"),
        pytest.param(
            ("pyright", "--pythonpath"), id="pyright", marks=pytest.mark.requires("pyright")
        ),
    ],
)
def test_programs_are_checked_by_its_types(
    checker: tuple[str, ...], installed: Path, tmp_path: Path
) -> None:
    programs = {"right.py": RIGHTLY_USED, "wrong.py": WRONGLY_USED}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [*checker, str(installed / "python"), *programs],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=10 * DEADLINE_S,
    )
    wrong = re.findall(r"(\w+\.py):(\d+):.*error", done.stdout)
    assert {(file, int(line)) for file, line in wrong} == {
        ("wrong.py", line) for line in range(3, 8)
    }, done.stdout + done.stderr
    assert done.returncode == 1


def test_it_attaches_to_a_program_of_another_environment(installed: Path, tmp_path: Path) -> None:
    profd = str(installed / "profd")
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
                "2",
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
