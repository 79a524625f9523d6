"""What every test has: a home of its own for profd, and the marker for tools that not every machine has.

``@pytest.mark.requires("tmux", "torch")`` names programs and importable modules. Where one is missing the test is
skipped with the reason; under CI, where all of them are promised, it fails instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fakedriver import FakeDriver  # it loads NVML's module, which few tests need

MODULES = frozenset({"torch", "torchvision", "tqdm", "playwright", "pyarrow"})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "requires(*tools): programs on PATH, or modules, that the test cannot do without"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_without(*(tool for mark in item.iter_markers("requires") for tool in mark.args))


def skip_without(*tools: str) -> None:
    """Skip the test where one of these is missing; under CI let it fail."""
    missing = [tool for tool in tools if not is_there(tool)]
    if missing:
        why = f"needs {', '.join(missing)}, not installed here"
        if os.environ.get("CI"):
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


def is_there(tool: str) -> bool:
    """Say whether a program is on PATH, or a module can be imported, without importing it."""
    if tool in MODULES:
        return importlib.util.find_spec(tool) is not None
    return shutil.which(tool) is not None


@pytest.fixture(autouse=True)
def profd_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give profd an empty home: no test sees or leaves runs of the user's, or of another test."""
    # Not below tmp_path: its names are longer than the path of a Unix socket may be.
    with tempfile.TemporaryDirectory(prefix="profd-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("PROFD_HOME", folder)
        yield Path(folder)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the NVML without a GPU."""
    from fakedriver import build

    skip_without("cc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Give the test an NVIDIA driver without GPUs: add some."""
    from fakedriver import FakeDriver

    made = FakeDriver(nvml_library, tmp_path)
    made.install(monkeypatch)
    made.set_now(0)
    return made
