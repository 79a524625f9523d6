"""Keeps ``docs/measurements.md``: a section a benchmark, written by the benchmark, with machine and versions."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from importlib import metadata
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "measurements.md"
_TITLE = "# Measurements\n\nEach section is written by the benchmark that it names; run it again to renew it.\n"


def write_section(title: str, method: str, lines: list[str]) -> None:
    """Replace the section of this title, or add it; ``method`` is one paragraph, ``lines`` are Markdown."""
    text = FILE.read_text() if FILE.exists() else _TITLE
    body = "\n".join([f"## {title}", "", method, "", *lines, "", f"_{circumstances()}_", ""])
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    replaced, count = pattern.subn(lambda _: body + "\n", text)
    FILE.write_text(replaced.rstrip() + "\n" if count else f"{text.rstrip()}\n\n{body}")


def circumstances() -> str:
    """Return what the numbers depend on: machine, versions, day."""
    cpus = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    names = ("profd", "py-spy", "torch", "textual")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    return (
        f"{date.today()}, {os.cpu_count()} cores of {cpus[0] if cpus else platform.machine()}, Linux "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, {versions}"
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
