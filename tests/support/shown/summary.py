"""The numbers of a summary: of its JSON, and of its text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profd.daemon.analyze.confidence import margin
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from support.shown.numbers import IDLE, IDLE_TEXT, NONE, Numbers, command, exact, function, read

_WIDE = 400
# The kind of a number, where it stands, and the field that says of which one it is.
_FIELDS = (
    ("duration", "duration_s"),
    ("samples", "samples"),
    ("coverage", "coverage"),
    ("torn share", "torn_share"),
    ("cost", "cost_core_share"),
    ("exit code", "target.exit.code"),
    ("pid of the target", "target.pid"),
    ("steps", "steps.count"),
    ("step rate", "steps.per_s"),
    ("error of the step rate", "steps.per_s_error"),
    ("share of the time with an idle GPU", "gpu_idle.share"),
)
_FIELDS_OF_ROWS = (
    ("line of a phase", "phase_lines", "phase", "line"),
    ("self share of a function", "functions", "name", "self_share"),
    ("total share of a function", "functions", "name", "total_share"),
    ("self samples of a function", "functions", "name", "self_samples"),
    ("line of a function", "functions", "name", "line"),
    ("GPU utilization of a function", "functions", "name", "gpu_utilization"),
    ("samples of a process", "processes", "pid", "samples"),
    ("CPU of a process", "processes", "pid", "cpu_cores"),
    ("memory of a process", "processes", "pid", "rss_bytes"),
    ("exit code of a process", "processes", "pid", "exit.code"),
    ("GPU utilization", "gpus", "device", "utilization"),
    ("GPU memory in use", "gpus", "device", "memory_used_bytes"),
    ("GPU memory", "gpus", "device", "memory_bytes"),
    ("GPU power", "gpus", "device", "power_watts"),
    ("energy of a GPU", "gpus", "device", "energy_joules"),
    ("gain of a finding", "findings", "label", "gain_bound"),
    ("own work of a rank", "ranks", "rank", "own_share"),
    ("waiting of a rank", "ranks", "rank", "waiting_share"),
    ("growth of memory", "growing", "pid", "slope_bytes_per_s"),
    ("time until memory is full", "growing", "pid", "time_to_limit_s"),
    ("calls of an operator", "operators", "name", "calls"),
    ("self CPU share of an operator", "operators", "name", "self_cpu_share"),
    ("self CUDA share of an operator", "operators", "name", "self_cuda_share"),
)
_TIMES_OF_OPERATORS = {
    "self CPU time of an operator": "self_cpu_ns", "CPU time of an operator": "cpu_total_ns",
    "self CUDA time of an operator": "self_cuda_ns", "CUDA time of an operator": "cuda_total_ns",
}  # fmt: skip


def of_json(path: Path) -> Numbers:
    """Yield the numbers of ``profd summary --json``."""
    said = json.loads(command("summary", str(path), "--json"))
    for row in said["functions"]:
        row["name"] = function(row["function"], row["module_path"])
        yield exact("margin of a self share", row["name"], min(margin(row["self_error"]), 1))
    said["growing"] = [row for row in said["memory"] if row["verdict"] == "growing"]
    windows = said["last_window"] if len(said["last_window"]) == 1 else ()
    said["operators"] = [row for window in windows for row in window["operators"]]
    for kind, place in _FIELDS:
        if (value := _at(said, place)) is not None:
            yield exact(kind, "run", value)
    for kind, rows, of, place in _FIELDS_OF_ROWS:
        yield from (
            exact(kind, row[of], value)
            for row in said[rows]
            if (value := _at(row, place)) is not None
        )
    yield from _sums(said)
    for window in windows:
        yield exact("steps of a window", "run", window["steps"])
        yield exact("length of a window", "run", (window["end_ns"] - window["start_ns"]) / 1e9)
        for gpu in window["gpus"]:
            for kind, time in zip(IDLE, (gpu["idle_ns"], gpu["host_ns"]), strict=True):
                yield exact(kind, gpu["gpu"], time / (gpu["busy_ns"] + gpu["idle_ns"]))
        for row in window["operators"]:
            for kind, field in _TIMES_OF_OPERATORS.items():
                yield exact(kind, row["name"], row[field] / 1e9)


def _at(row: Mapping[str, Any], place: str) -> Any:  # noqa: ANN401  whatever JSON holds
    value: Any = row
    for name in place.split("."):
        value = None if value is None else value[name]
    return value


def _sums(said: Mapping[str, Any]) -> Numbers:
    """Yield what is counted or added up of the rows of a summary."""
    processes = said["processes"]
    yield exact("processes", "run", len(processes))
    yield exact("workers", "run", sum(row["role"] == "worker" for row in processes))
    yield exact("findings", "run", len(said["findings"]))
    for phase, share in said["phases"].items():
        yield exact("share of a phase", phase, share)
        yield exact("margin of a phase", phase, min(margin(said["phase_errors"][phase]), 1))
    memory: Counter[str] = Counter()
    for row in processes:
        if row["rss_bytes"] is not None:
            memory[f"{row['role']} {'' if row['rank'] is None else row['rank']}"] += row[
                "rss_bytes"
            ]
        if row["functions"]:
            yield exact(
                "share of a process's hottest function",
                row["pid"],
                row["functions"][0]["self_share"],
            )
    yield from (exact("memory of a role", of, value) for of, value in memory.items())
    for group in (said["step"] or {"parts": ()})["parts"]:
        for phase in group["parts"]:
            yield exact("time of a phase in a step", phase["name"], phase["seconds"])
    for finding in said["findings"]:
        for measure in finding["evidence"]["measures"]:
            yield exact(
                "measure of a finding", f"{finding['label']}: {measure['name']}", measure["value"]
            )


# A pattern of a line, the group that names what its numbers are of (None: the run), and the kinds
# of the other groups.
_LINES: tuple[tuple[str, int | None, tuple[str, ...]], ...] = (
    (r"^\S.*(?:after|recorded for) ([^,]+?)(?:, until.*)?(?:, ~?([\d,]+) steps?(?: at (\S+))?)?$", None,
     ("duration", "steps", "step rate")),
    (r"^pid (\d+) ·", None, ("pid of the target",)),
    (r" ended with (\d+) after ", None, ("exit code",)),
    (r"^steps by .*, ± (\S+)$", None, ("error of the step rate",)),
    (r"^([\d,]+) samples", None, ("samples",)),
    (r"over (\S+ %) of the run", None, ("coverage",)),
    (r"· (\S+ %) torn", None, ("torn share",)),
    (r"profd cost (\S+ %)", None, ("cost",)),
    (r"^  . {2}(\D+?) +(<?\d+ %) ± \S+ .*?(?::(\d+)(?:  .*)?)?$", 0, ("share of a phase", "line of a phase")),
    (r"^  . {2}(\D+?) +<?\d+ % ± \S+ +([\d.,]+ [mµ]?s)(?:  |$)", 0, ("time of a phase in a step",)),
    (r"^  (?:rank \d+, )?(\d+) whole steps? in (.+)$", None, ("steps of a window", "length of a window")),
    (IDLE_TEXT, 0, IDLE),
    (r"^ +(-|<?\S+ %) +(<?\S+ %) +([\d,]+)  (\S+)", 3,
     ("self CUDA share of an operator", "self CPU share of an operator", "calls of an operator")),
    (r"^  (\S+)  .*: utilized (\d+ %), memory (\S+ \S+) of (\S+ \S+), (\d+ W)", 0,
     ("GPU utilization", "GPU memory in use", "GPU memory", "GPU power")),
    (r"^GPU idle (<?\d+ %) of the time: ", None, ("share of the time with an idle GPU",)),
    (r"^ +(\d+)  \S.*? +(-|<?\d+ %) +(-|\S+ [kMGT]?B) {2,}(?:-|(<?\d+ %)  .*)$", 0,
     ("CPU of a process", "memory of a process", "share of a process's hottest function")),
    (r"^  .? +(\d+)  .* (<?\d+ %) +(<?\d+ %)(?:  .*)?$", 0, ("own work of a rank", "waiting of a rank")),
    (r"^  ▲ \D+(?:\d+ )?(\d+) grows by (\S+ \S+)(?: ±.*?)?(?:: .* is full in (.+))?$", 0,
     ("growth of memory", "time until memory is full")),
    (r"^ +(<?\S+ %) ± \S+ +(<?\S+ %)(?: +(-|<?\d+ %))?  (\S.*? {2,}\S+?)(?:  .*)?$", 3,
     ("self share of a function", "total share of a function", "GPU utilization of a function")),
)  # fmt: skip
_MARGINS = (
    (r"^  . {2}(\D+?) +<?\d+ % ± (\S+) ", "margin of a phase"),
    (
        r"^ +<?\S+ % ± (\S+) +<?\S+ %(?: +(?:-|<?\d+ %))?  (\S.*? {2,}\S+?)(?:  .*)?$",
        "margin of a self share",
    ),
)


def of_text(path: Path) -> Numbers:
    """Yield the numbers of ``profd summary``, on paper that is wide enough for all names."""
    with RunReader(path) as reader:
        lines = summary_text(summarize(reader), _WIDE).splitlines()
    yield exact(
        "findings",
        "run",
        sum(
            re.match("[▲·] (?!no samples |nothing was read )[^:]+: ", line) is not None
            for line in lines
        ),
    )
    for line in lines:
        for pattern, at, kinds in _LINES:
            if found := re.search(pattern, line):
                groups = [group or "" for group in found.groups()]
                of = "run" if at is None else _name(groups.pop(at))
                yield from (
                    read(kind, of, shown)
                    for kind, shown in zip(kinds, groups, strict=True)
                    if shown not in NONE
                )
        yield from _margins(line)


def _margins(line: str) -> Numbers:
    for pattern, kind in _MARGINS:
        if found := re.search(pattern, line):
            name, shown = sorted(found.groups(), key=lambda group: group[0].isdigit())
            yield read(kind, _name(name), shown, 0.01)


def _name(shown: str) -> str:
    """Return a name, which is that of a function with its place, or of something else."""
    words: Sequence[str] = re.split(r" {2,}", shown)
    return function(words[0], words[1]) if len(words) > 1 else words[0]
