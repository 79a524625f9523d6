"""Makes data sets of any size out of recorded runs, with planted answers: what `profd fleet` is
tested and measured by.

The minutes of a recorded run are drawn again and again, each with times of its own, for ranks of
jobs on nodes over two weeks. Planted are a node whose steps take longer, a job that got slower in
the last week because of one phase, and a phase that most idle GPU time goes by in; ``Truth`` says
what they are.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy
import pyarrow
from fleet.fleettemplate import Numbers, Template, take_template
from pyarrow import parquet

from profd.daemon.fleet.dataset import DAY_NS, TABLES, DataSet, Partition, date_of
from profd.daemon.fleet.export import place_files

ROW_GROUP = 1 << 17
"""Rows that are read together: so few that two threads share a file."""
File = tuple[str, Partition, Path, int]
"""A file with its table, its partition and the number of its rows."""
MINUTE_NS = 60_000_000_000
MOST_MINUTES = 1440
UNTIL = datetime(2026, 11, 16, tzinfo=timezone.utc)
UNTIL_NS = int(UNTIL.timestamp()) * 1_000_000_000
STEP_S = 0.25
RUN_SPREAD = 0.01
MINUTE_SPREAD = 0.05


class Plan(msgspec.Struct, frozen=True):
    """What is to be made: about ``rows`` samples, of ``jobs`` on ``nodes`` over two weeks.

    Each job has ``runs`` in each week, one a node and turn, with ``gpus`` to a rank of which a
    ``busy`` part is used but in the phase ``cause``, which takes ``share`` of the time. Where
    ``quiet``, nothing else is planted.
    """

    rows: int
    jobs: int = 12
    nodes: int = 8
    runs: int = 4
    gpus: int = 1
    busy: float = 0.95
    cause: str = "data wait"
    share: float = 0.3
    slow: float = 1.25
    regression: float = 1.2
    quiet: bool = False
    seed: int = 1


class Truth(msgspec.Struct, frozen=True):
    """What was made, and what has to be named first; None where nothing was planted."""

    rows: int
    runs: int
    slow_node: str | None
    cause: str
    gpu_idle_ns: dict[str, int]
    """By phase."""


class Run(NamedTuple):
    """A run to be made."""

    job: str
    node: str
    started_ns: int
    minutes: int
    ranks: int
    slower: float
    waits: float

    @property
    def key(self) -> str:
        """What tells it from all others."""
        stamp = datetime.fromtimestamp(self.started_ns // 1_000_000_000, timezone.utc).strftime(
            "%Y%m%d-%H%M%S"
        )
        return f"{stamp}-{self.job}@{self.node}"


def make_fleet(data: DataSet, template: Template, plan: Plan) -> Truth:
    """Write a data set, and return what is in it.

    Raises ValueError where the template has nothing of the cause.
    """
    if plan.cause not in template.phases:
        raise ValueError(f"the run has no {plan.cause}: take one that waits for data")
    random = numpy.random.default_rng(plan.seed)
    rows, runs, idle = 0, 0, dict.fromkeys(sorted(set(template.phases[1:])), 0)
    for run in _runs(plan, template):
        with tempfile.TemporaryDirectory(prefix="fleetgen-") as folder:
            files, made = _run_files(run, template, plan, random, Path(folder))
            ended_ns = run.started_ns + run.minutes * MINUTE_NS
            place_files(data, run.key, (run.started_ns, ended_ns), files, Path(folder))
        runs += 1
        rows += made.rows
        for phase, idle_ns in made.idle_ns.items():
            idle[phase] += idle_ns
    return Truth(
        rows=rows,
        runs=runs,
        slow_node=None if plan.quiet else _node(plan.nodes - 1),
        cause=max(idle, key=idle.__getitem__),
        gpu_idle_ns=idle,
    )


def _runs(plan: Plan, template: Template) -> Iterator[Run]:
    """Yield the runs: as long as a day at most, on as many ranks as that takes."""
    count = plan.jobs * 2 * plan.runs
    rank_minutes = plan.rows / template.rows_a_minute / count
    ranks = max(1, round(rank_minutes / MOST_MINUTES + 0.5))
    minutes = max(1, round(rank_minutes / ranks))
    for job in range(plan.jobs):
        for week in range(2):
            for turn in range(plan.runs):
                node = (job + week + turn * 3) % plan.nodes
                is_slow = node == plan.nodes - 1 and not plan.quiet
                waits = plan.regression if job == 1 and week == 0 and not plan.quiet else 1.0
                started_ns = UNTIL_NS - (7 * week + turn % 7 + 1) * DAY_NS + job * 1_000_000_000
                slower = plan.slow if is_slow else 1.0
                yield Run(
                    _job(job),
                    _node(node),
                    started_ns,
                    min(minutes, MOST_MINUTES - 1),
                    ranks,
                    slower,
                    waits,
                )


def _job(number: int) -> str:
    return f"job-{number:02d}"


def _node(number: int) -> str:
    return f"node-{number:02d}"


class Made(NamedTuple):
    """How many samples a run has, and for how long its GPUs were idle in each phase."""

    rows: int
    idle_ns: dict[str, int]


def _run_files(
    run: Run, template: Template, plan: Plan, random: numpy.random.Generator, folder: Path
) -> tuple[list[File], Made]:
    """Write the tables of a run to a local folder."""
    rows, idle = 0, dict.fromkeys(sorted(set(template.phases[1:])), 0)
    files = [_file(folder, run, "stacks", None, _columns("stacks", _stack_columns(run, template)))]
    pace_s = STEP_S * run.slower * run.waits * random.lognormal(0, RUN_SPREAD)
    for rank in range(run.ranks):
        columns = _samples(run, template, plan, random, rank)
        for phase in idle:
            in_phase = numpy.isin(columns["stack"], numpy.flatnonzero(template.phases == phase))
            idle[phase] += plan.gpus * int(
                columns["gpu_idle_ns"][in_phase & columns["is_trainer"]].sum()
            )
        rows += len(columns["stack"])
        files.append(
            _file(folder, run, "samples", rank, _sample_table(run, template, columns, rank))
        )
        files.append(
            _file(folder, run, "steps", rank, _columns("steps", _steps(run, pace_s, random, rank)))
        )
        files.append(_file(folder, run, "runs", rank, _columns("runs", _run_row(run, plan, rank))))
    files.append(_file(folder, run, "findings", None, _columns("findings", _finding(run, plan))))
    return files, Made(rows, idle)


def _file(folder: Path, run: Run, table: str, rank: int | None, content: pyarrow.Table) -> File:
    partition = Partition(date_of(run.started_ns), run.job, run.node, rank)
    path = folder / f"{table}-{rank}"
    parquet.write_table(
        content, path, ROW_GROUP, compression="zstd", dictionary_pagesize_limit=1 << 26
    )
    return table, partition, path, content.num_rows


def _samples(
    run: Run, template: Template, plan: Plan, random: numpy.random.Generator, rank: int
) -> dict[str, Numbers]:
    """Draw the minutes of a rank: rows of recorded minutes, their times changed at random and
    scaled to a minute.
    """
    drawn = random.integers(0, len(template.starts) - 1, run.minutes)
    lengths = numpy.diff(template.starts)[drawn]
    ends = numpy.cumsum(lengths)
    rows = (
        numpy.arange(ends[-1])
        - numpy.repeat(ends - lengths, lengths)
        + numpy.repeat(template.starts[drawn], lengths)
    )
    minute = numpy.repeat(numpy.arange(run.minutes), lengths)
    order = numpy.argsort(
        template.thread[rows], kind="stable"
    )  # by thread, then in order of time, as exports are
    rows, minute = rows[order], minute[order]
    stack, thread = template.stack[rows], template.thread[rows]
    time_ns = template.time_ns[rows] * (
        1 + MINUTE_SPREAD * random.standard_normal(len(rows), dtype=numpy.float32)
    )
    in_cause = (template.phases == plan.cause)[stack]
    is_trainer = numpy.array([role == "main" and is_main for role, _, is_main in template.threads])[
        thread
    ]
    _lengthen(time_ns, in_cause & is_trainer, is_trainer, run, plan)
    times = numpy.maximum(time_ns, 1).astype(numpy.int64)
    idle = numpy.where(in_cause, 1.0, 1 - plan.busy) * times * plan.busy
    return {
        "thread": thread,
        "is_trainer": is_trainer,
        "minute_ns": run.started_ns + minute * MINUTE_NS,
        "stack": stack,
        "samples": template.samples[rows],
        "time_ns": times,
        "gpu_known_ns": times,
        "gpu_idle_ns": numpy.minimum(idle.astype(numpy.int64), times),
    }


def _lengthen(
    time_ns: Numbers, in_cause: Numbers, is_trainer: Numbers, run: Run, plan: Plan
) -> None:
    """Give the cause its share and the time by which steps take longer, and the trainer the time of
    the run in all.
    """
    caused, whole = time_ns[in_cause].sum(), time_ns[is_trainer].sum()
    wanted = plan.share / (1 - plan.share) * (whole - caused)
    wanted += (run.waits - 1) * wanted / plan.share
    time_ns[in_cause] *= wanted / caused
    time_ns[is_trainer] *= run.minutes * MINUTE_NS / time_ns[is_trainer].sum()


def _sample_table(
    run: Run, template: Template, columns: dict[str, Numbers], rank: int
) -> pyarrow.Table:
    count = len(columns["stack"])
    roles, names, mains = (list(values) for values in zip(*template.threads, strict=True))
    pids = numpy.array([1000 + rank if role == "main" else 2000 + rank for role in roles])
    return pyarrow.table(
        {
            "run": _repeated([run.key], numpy.zeros(count, dtype=numpy.int8)),
            "pid": pids[columns["thread"]],
            "role": _repeated(roles, columns["thread"]),
            "thread": _repeated(names, columns["thread"]),
            "is_main": numpy.array(mains)[columns["thread"]],
            **{name: columns[name] for name in list(TABLES["samples"])[5:]},
        }
    )


def _repeated(values: Sequence[str], indices: Numbers) -> pyarrow.DictionaryArray:
    return pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(indices.astype(numpy.int32)), pyarrow.array(values)
    )


def _columns(table: str, rows: Sequence[Sequence[Any]]) -> pyarrow.Table:
    names = list(TABLES[table])
    return pyarrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _stack_columns(run: Run, template: Template) -> list[tuple[Any, ...]]:
    return [(run.key, *row) for row in template.stacks]


def _steps(
    run: Run, pace_s: float, random: numpy.random.Generator, rank: int
) -> list[tuple[Any, ...]]:
    paces = pace_s * random.lognormal(0, RUN_SPREAD, run.minutes)
    return [
        (run.key, 1000 + rank, run.started_ns + number * MINUTE_NS, MINUTE_NS, 60 / pace)
        for number, pace in enumerate(paces)
    ]


def _run_row(run: Run, plan: Plan, rank: int) -> list[tuple[Any, ...]]:
    ended_ns = run.started_ns + run.minutes * MINUTE_NS
    names = (run.key.partition("@")[0], run.job, run.node, "python train.py", "0.1.0", "ended")
    lived_ns = ended_ns - run.started_ns
    return [
        (
            run.key,
            1000 + rank,
            *names,
            run.started_ns,
            ended_ns,
            lived_ns,
            plan.gpus,
            "made",
            rank,
            run.ranks,
        )
    ]


def _finding(run: Run, plan: Plan) -> list[tuple[Any, ...]]:
    """Return what a rule would say of the cause: that half of the time can be given back."""
    ended_ns = run.started_ns + run.minutes * MINUTE_NS
    lost_ns = (ended_ns - run.started_ns) * run.ranks // 2
    words = (
        "input-bound-saturated",
        "warning",
        "input-bound",
        f"input-bound: {plan.cause}",
        "fetch",
        "train.py",
        58,
    )
    return [(run.key, *words, 2.0, run.started_ns, ended_ns, lost_ns, lost_ns * plan.gpus)]


def main() -> None:
    """Make a data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a recorded run")
    parser.add_argument("to", help="a folder or URL")
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = Plan(int(options.rows), seed=options.seed)
    print(make_fleet(DataSet(options.to), take_template(options.run), plan))
