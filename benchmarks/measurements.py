"""Keeps ``docs/measurements.md``: a section a benchmark, written by the benchmark, with machine and
versions.

Beside it a file a machine, ``benchmarks/results/MACHINE.json``, has the numbers of all tables each
time that they were measured, by section, row and column. What differs from the time before by a
tenth is said.
"""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import date
from importlib import metadata
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "measurements.md"
RESULTS = Path(__file__).with_name("results")
_KEPT = 20  # times that each section was measured
_CHANGE = 0.1
_TITLE = (
    "# Measurements\n\nEach section is written by the benchmark that it names; run it again to "
    "renew it.\n"
)


def write_section(title: str, method: str, lines: list[str]) -> None:
    """Replace the section of this title, or add it.

    ``method`` is one paragraph, ``lines`` are Markdown.
    """
    text = FILE.read_text() if FILE.exists() else _TITLE
    body = "\n".join([f"## {title}", "", method, "", *lines, "", f"_{circumstances()}_", ""])
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    replaced, count = pattern.subn(lambda _: body + "\n", text)
    FILE.write_text(replaced.rstrip() + "\n" if count else f"{text.rstrip()}\n\n{body}")
    _keep(title, numbers(lines))


def numbers(lines: list[str]) -> dict[str, float]:
    """Return the first number of each cell of Markdown tables, by row and column."""
    found, head = {}, [""]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        cells = (
            [cell.strip(" *") for cell in line.strip("|").split("|")]
            if line.startswith("|")
            else []
        )
        if set(below) <= set("|-: ") and below.startswith("|"):
            head = cells
        elif not set(line) <= set("|-: "):
            for name, cell in zip(head[1:], cells[1:], strict=False):
                if number := re.match(r"[-+]?[\d,]*\.?\d+", cell):
                    found[f"{cells[0]}: {name}"] = float(number[0].replace(",", ""))
    return found


def _keep(title: str, values: dict[str, float]) -> None:
    """Add the numbers to the file of this machine, and say which differ from those of the time
    before.
    """
    file = (
        RESULTS
        / f"{re.sub(r'[^a-z0-9]+', '-', f'{_cpu()} {os.cpu_count()}'.lower()).strip('-')}.json"
    )
    kept = json.loads(file.read_text()) if file.exists() else {}
    before = kept.get(title, [{}])[-1].get("values", {})
    for name, value in values.items():
        was = before.get(name)
        if was is not None and abs(value - was) > _CHANGE * abs(was):
            print(f"{title}, {name}: {value:g}, before {was:g}")
    kept[title] = [*kept.get(title, []), {"when": circumstances(), "values": values}][-_KEPT:]
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def circumstances() -> str:
    """Return what the numbers depend on: machine, versions, day."""
    names = ("profd", "py-spy", "torch", "textual")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    return (
        f"{date.today()}, {os.cpu_count()} cores of {_cpu()}, Linux "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, {versions}"
    )


def _cpu() -> str:
    cpus = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return cpus[0] if cpus else platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
