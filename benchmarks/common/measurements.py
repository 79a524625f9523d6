"""Keeps what was measured: a file of JSON for each section, and ``docs/measurements.md`` made of
all.

``benchmarks/results/FOLDER/TITLE.json`` has the title, the method, the day, the machine, the commit
and the versions, and the body: paragraphs, and tables of columns and rows. A cell has its interval
where the measurement gives one. What differs from the time before by a tenth is said.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "measurements.md"
RESULTS = ROOT / "benchmarks" / "results"
FOLDERS = ("cost", "truth", "findings", "trust", "gpu", "fleet")
WRITES = True
"""Whether sections are written; the runner turns it off where they are to be printed only."""
_CHANGE = 0.1
_TITLE = (
    "# Measurements\n\nThis page is made of `benchmarks/results`. Each section is written by the benchmark that it "
    "names; run it again to renew it: `python benchmarks/run.py NAME`.\n"
)

Result = dict[str, Any]
Part = str | dict[str, Any]
"""A paragraph, or a table."""


def write_section(title: str, method: str, lines: Sequence[str]) -> None:
    """Keep a section in place of the one of this title, and make the page anew.

    ``method`` is one paragraph that names the benchmark by its path, ``lines`` are Markdown.
    """
    if not WRITES:
        return
    folder = re.findall(r"`benchmarks/(\w+)/\w+\.py", method)[0]
    result: Result = {"title": title, "method": method, **_moment(), "body": parse(lines)}
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    file = RESULTS / folder / f"{name}.json"
    if file.exists():
        _say_changes(json.loads(file.read_text()), result)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump(result))
    write_page()


def write_page() -> None:
    """Make the page of all results, in the order of the folders."""
    files = [file for folder in FOLDERS for file in sorted((RESULTS / folder).glob("*.json"))]
    sections = [render(json.loads(file.read_text())) for file in files]
    FILE.write_text("\n".join([_TITLE, *sections]))


def parse(lines: Sequence[str]) -> list[Part]:
    """Return the paragraphs and tables of Markdown lines."""
    body: list[Part] = []
    for block in "\n".join(lines).strip().split("\n\n"):
        rows = [_cells(line) for line in block.split("\n")]
        if block.startswith("|"):
            body.append({"columns": rows[0], "rules": rows[1], "rows": rows[2:]})
        else:
            body.append(block)
    return body


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def render(result: Result) -> str:
    """Return a section of the page."""
    blocks = [f"## {result['title']}", result["method"], *map(_markdown, result["body"])]
    told = [result["date"], result["machine"], result["versions"]]
    if result["commit"]:
        told.append(f"commit {result['commit']}")
    return "\n\n".join([*blocks, f"_{', '.join(told)}_\n"])


def _markdown(part: Part) -> str:
    if isinstance(part, str):
        return part
    rows = [part["columns"], *part["rows"]]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'|'.join(part['rules'])}|", *lines[1:]])


def dump(result: Result) -> str:
    """Return a result as JSON, a row of a table in each line."""
    heads = [f"{_json(name)}: {_json(result[name])}" for name in result if name != "body"]
    body = ",\n".join(map(_part, result["body"]))
    return "{\n" + ",\n".join([*heads, f'"body": [\n{body}\n]']) + "\n}\n"


def _part(part: Part) -> str:
    if isinstance(part, str):
        return _json(part)
    columns, rules = _json(part["columns"]), _json(part["rules"])
    rows = ",\n".join(map(_json, part["rows"]))
    return f'{{"columns": {columns}, "rules": {rules}, "rows": [\n{rows}\n]}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def numbers(result: Result) -> Iterator[tuple[str, float]]:
    """Yield the first number of each cell of all tables, by row and column."""
    for part in result["body"]:
        if isinstance(part, str):
            continue
        for row in part["rows"]:
            for column, cell in zip(part["columns"][1:], row[1:], strict=False):
                if number := re.match(r"[-+]?[\d,]*\.?\d+", cell.strip(" *")):
                    name = f"{row[0].strip(' *')}: {column}"
                    yield name, float(number[0].replace(",", ""))


def _say_changes(before: Result, now: Result) -> None:
    was = dict(numbers(before)) if before["machine"] == now["machine"] else {}
    for name, value in numbers(now):
        if name in was and abs(value - was[name]) > _CHANGE * abs(was[name]):
            print(f"{now['title']}, {name}: {value:g}, before {was[name]:g}")


def _moment() -> dict[str, str]:
    """Return what numbers depend on: day, machine, versions, commit."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    named = ", ".join(_versions(("profd", "py-spy", "torch", "textual")))
    linux = platform.release().split("-")[0]
    return {
        "date": str(date.today()),
        "machine": f"{os.cpu_count()} cores of {_cpu()}, Linux {linux}",
        "versions": f"Python {platform.python_version()}, {named}",
        "commit": commit,
    }


def circumstances() -> str:
    """Return the day, the machine and the versions in words."""
    moment = _moment()
    return f"{moment['date']}, {moment['machine']}, {moment['versions']}"


def _cpu() -> str:
    cpus = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return cpus[0] if cpus else platform.machine()


def _versions(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"{name} absent"
