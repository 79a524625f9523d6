"""The command that adds a package fits the installation in which profd runs."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from profd.daemon import installation
from profd.daemon.installation import install_command, install_extra

PYTHON = "/opt/own tools/bin/python"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of an environment of its own, with pip, and without uv on PATH."""
    folder = tmp_path / "profd"
    folder.mkdir()
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", PYTHON)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    return folder


def test_an_environment_with_pip_and_one_without(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install_command("a>=1") == f"'{PYTHON}' -m pip install 'a>=1'"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert install_command("a") == f"uv pip install --python '{PYTHON}' a"


def test_an_environment_of_pipx_and_one_of_uv_tool(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefix / "pipx_metadata.json").touch()
    assert install_command("-U", "py-spy") == "pipx runpip profd install -U py-spy"
    (prefix / "pipx_metadata.json").unlink()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert install_command("a") == f"uv pip install --python '{PYTHON}' a"


def test_a_python_that_the_system_manages_is_told_to_take_it(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prefix.parent / "EXTERNALLY-MANAGED").touch()
    assert "--break-system-packages" not in install_command("a")  # an environment above it
    monkeypatch.setattr(sys, "base_prefix", str(prefix))
    assert install_command("a") == f"'{PYTHON}' -m pip install --break-system-packages a"


def test_an_extra_is_named_by_its_packages_and_by_no_release_of_profd() -> None:
    extras = metadata.metadata("profd").get_all("Provides-Extra") or []
    assert {"demo", "fleet", "metrics", "otlp", "parquet"} <= set(extras)
    for extra in extras:
        words = install_extra(extra)
        assert re.search(r"install \S*\w", words), extra
        assert "profd[" not in words
    assert all(one in install_extra("fleet") for one in ("duckdb", "fsspec", "pyarrow"))


def test_every_remedy_asks_this_place() -> None:
    sources = Path(installation.__file__).parent
    tellers = [
        path.name
        for folder in (sources, sources.parent / "cli", sources.parent / "tui")
        for path in folder.rglob("*.py")
        if re.search(r"pip install|pipx run|uv tool |uv pip", path.read_text())
    ]
    assert tellers == ["installation.py"]
