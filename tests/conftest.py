"""What every test has: a home of its own for profd, and the marker for what not every machine has.

``@pytest.mark.requires("tmux", "torch")`` names programs, modules, and rights. If one is missing
the test is skipped with the reason; under CI, where all but the rights are promised, it fails
instead. What needs nothing is selected by ``-m "not requires"``. The last line says what was
skipped, and how to get what it lacks.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import math
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from support import browser
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from profd.daemon import processes
from profd.daemon.windows import gdb
from profd.daemon.windows.request import WindowFailed

if TYPE_CHECKING:
    from support.gpusim import SimulatedDriver  # it loads NVML's module, which few tests need
    from support.pyspy.standin import StandIn

MODULES = frozenset({"torch", "torchvision", "tqdm", "pyarrow", "mcp"})
NODE_TOOLS = ("ip", "unshare", "hostname")
RIGHTS = frozenset({"root", "netns"})
"""What an ordinary user does without, also in CI."""
REMEDIES = {
    **dict.fromkeys(sorted(MODULES), "make install"),
    **dict.fromkeys(("root", "netns"), "run as root"),
    "cc": "apt install gcc",
    "go": "apt install golang-go",
    "ps": "apt install procps",
    "systemd-analyze": "apt install systemd",
    "promtool": "apt install prometheus",
    **{name: f"npm install --global {name}" for name in ("speedscope", "axe-core", "pyright")},
}
"""How to get what a test needs; what is not listed is a package of Debian of that name."""
FOR_ANYONE = (
    "integration/browser",
    "unit/analyze",
    "unit/api",
    "unit/compare",
    "unit/exports",
    "unit/findings",
    "unit/fleet",
    "unit/frameworks",
    "unit/render",
)
"""Folders whose tests come to the same whoever runs them: ``.ci/run`` runs the others as root, too."""
OF_A_USER = (
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.posix_spawn",
    "os.setxattr",
    "os.system",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
)
"""What depends on who does it, by the names of Python's audit events."""
OF_A_USERS_PROCESS = re.compile(
    r"/proc/\d+/(task/\d+/)?(auxv|environ|io|maps|mem|pagemap|smaps\w*|stack|syscall)$"
)
"""What of a process only its user may read."""
MARKERS = (
    "anyone: comes to the same whoever runs it; given by the folder, unless a test is marked by_user",
    "by_user: depends on who runs it, though its folder does not",
    "requires(*needs): what the test cannot do without: programs on PATH, modules (torch, "
    "torchvision), root (this process is root's), netns (network namespaces), "
    "chromium (a browser, with playwright)",
    "dashboard: goes through the open dashboard in every room, format or command; `make quick` "
    "leaves it out",
)


# The gate draws the same examples each time, whatever the machine's speed. People look for more by
# ``--hypothesis-profile=explore``.
SPEED = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "gate",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=SPEED,
)
hypothesis.settings.register_profile(
    "explore", deadline=None, max_examples=2000, suppress_health_check=SPEED
)
hypothesis.settings.load_profile("gate")


def pytest_configure(config: pytest.Config) -> None:
    # What is started in the background ignores these, and so would all that tests start and
    # interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    if config.getoption("--judge-anyone"):
        sys.addaudithook(GUARD.hear)


class TestsByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each worker whole files of tests, whose fixtures are then made once, all tests of one
    recording, and those that drive a browser.

    In place of marks for pytest-xdist's loadgroup, which pytest 9.2 no longer groups by.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if file.startswith("tests/integration/browser/") and "agreement" not in file:
            return "tests/integration/browser"  # a browser takes seconds of CPU to start
        recording = test.partition("[")[2] if file.startswith("tests/replay/") else ""
        return recording or file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> TestsByFile:
    config.option.loadscopereorder = (
        False  # those that wait come first, and small ones fill the end
    )
    return TestsByFile(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the NVML without a GPU, which is compiled, and those that are for anyone."""
    folders = tuple(f"{Path(__file__).parent / name}/" for name in FOR_ANYONE)
    for item in items:
        if "nvml_library" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.requires("cc"))
        needs = {need for mark in item.iter_markers("requires") for need in mark.args}
        is_of_folder = str(item.path).startswith(folders) and not item.get_closest_marker("by_user")
        if is_of_folder and needs <= MODULES | {"chromium", "axe-core"}:
            item.add_marker(pytest.mark.anyone)


class Guard:
    """Knows what a test did that depends on who runs it, if it hears Python's audit events."""

    def __init__(self) -> None:
        self.done: list[str] | None = None
        """What the test under way did; None while nobody asks."""

    def hear(self, event: str, words: tuple[object, ...]) -> None:
        if self.done is None:
            return
        if event in OF_A_USER or (event == "open" and OF_A_USERS_PROCESS.match(str(words[0]))):
            self.done.append(f"{event} {words[:2]}")


GUARD = Guard()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--judge-anyone",
        action="store_true",
        help="fail tests that are for anyone, and do what depends on who runs them",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail where a test that is said to be for anyone depends on who runs it, if that is asked.

    The gate does not ask: what an earlier test left is collected during a later one.
    """
    if not item.config.getoption("--judge-anyone") or item.get_closest_marker("anyone") is None:
        return (yield)
    GUARD.done = []
    try:
        result = yield
        done = GUARD.done
    finally:
        GUARD.done = None
    assert not done, f"{done} depends on who runs it: mark the test by_user"
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the test if one of its needs is missing; under CI let it fail."""
    needs = dict.fromkeys(need for mark in item.iter_markers("requires") for need in mark.args)
    missing = [need for need in needs if not is_there(need)]
    if not missing:
        return
    item.user_properties.append(("lacks", missing))
    why = f"needs {', '.join(missing)}, not to be had here"
    if os.environ.get("CI") and not RIGHTS.issuperset(missing):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what was skipped for want of what, and how to get it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    lacks = Counter(need for test in skipped for need in lacked_by(test))
    if reporter and lacks:
        wanted = (f"{need} ({remedy(need)}): {count}" for need, count in lacks.most_common())
        reporter.write_line(f"skipped for want of {'; '.join(wanted)}")


def lacked_by(test: pytest.TestReport) -> list[str]:
    """Return what a test that was skipped lacks; nothing if it was skipped for another reason."""
    version = re.search(r"there is no (Python [0-9.]+) here", str(test.longrepr))
    if version:
        return [version[1]]
    return [
        need
        for name, needs in test.user_properties
        if name == "lacks" and isinstance(needs, list)
        for need in needs
    ]


def remedy(need: str) -> str:
    return (
        "install that version"
        if need.startswith("Python ")
        else REMEDIES.get(need, f"apt install {need}")
    )


def is_there(need: str) -> bool:
    """Say whether a machine has what a test needs, without importing any module of it."""
    if need in MODULES:
        return importlib.util.find_spec(need) is not None
    if need == "root":
        return os.geteuid() == 0
    if need == "netns":
        return is_there("root") and all(map(shutil.which, NODE_TOOLS))
    if need == "chromium":
        return (
            any(map(shutil.which, browser.NAMES))
            and importlib.util.find_spec("playwright") is not None
        )
    if need == "axe-core":
        return browser.axe_script() is not None
    if need == "gdb":
        return shutil.which(need) is not None and gdb_writes_registers()
    return shutil.which(need) is not None


@functools.cache
def gdb_writes_registers() -> bool:
    """Say whether gdb is new enough for this CPU."""
    try:
        asyncio.run(gdb.rehearse(gdb.require(), {}))
    except WindowFailed:
        return False
    return True


@pytest.fixture(scope="session", autouse=True)
def priority() -> Iterator[None]:
    """Fail where a test has changed the priority of whoever runs the tests: what is measured next
    would have it.
    """
    before = processes.read("/proc/self/autogroup")
    yield
    assert processes.read("/proc/self/autogroup") == before


@pytest.fixture(autouse=True)
def whole_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look read all columns of a timeline: how many it has time for is chance."""
    monkeypatch.setattr("profd.tui.columns.ENOUGH_S", math.inf)


@pytest.fixture(autouse=True)
def patient_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for whoever reads a target's files: after two seconds it is not asked again for 30."""
    monkeypatch.setattr("profd.daemon.userfiles.UserFiles.deadline_s", 120.0)
    monkeypatch.setattr("profd.daemon.userfiles.START_S", 120.0)


@pytest.fixture(autouse=True)
def profd_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give profd an empty home: no test sees or leaves runs of the user's, or of another test."""
    # Not below tmp_path: its names are longer than the path of a Unix socket may be.
    with tempfile.TemporaryDirectory(prefix="profd-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("PROFD_HOME", folder)
        yield Path(folder)


@pytest.fixture
def py_spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Put a stand-in in the place of py-spy, for this test and all that it starts."""
    from support.pyspy.standin import StandIn

    with tempfile.TemporaryDirectory(prefix="py-spy-", ignore_cleanup_errors=True) as folder:
        made = StandIn(Path(folder))
        monkeypatch.setenv("PROFD_PY_SPY", os.fspath(made.path))
        yield made
        made.end()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the NVML without a GPU."""
    from support.gpusim import build

    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    """Give the test an NVIDIA driver without GPUs: add some."""
    from support.gpusim import SimulatedDriver

    made = SimulatedDriver(nvml_library, tmp_path)
    made.install(monkeypatch)
    made.set_now(0)
    return made
