"""Reduces runs of a data set by DuckDB to partial sums, and adds these up.

The same here and on a cluster.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from profd.daemon.analyze.phases import (
    CHECKPOINT,
    COLLECTIVE,
    COMPILE,
    DATA_LOAD,
    DATA_WAIT,
    LOGGING,
    STARTUP,
    WAITING,
)
from profd.daemon.errors import MissingTool, RunUnreadable
from profd.daemon.fleet.dataset import TABLES, DataSet, Manifest
from profd.daemon.fleet.export import empty_file
from profd.daemon.installation import install_extra
from profd.daemon.timerange import TimeRange
from profd.daemon.units import size

if TYPE_CHECKING:
    import duckdb


class RunPart(msgspec.Struct, frozen=True):
    """A run of one node: its job, where and when it ran, and its training processes.

    ``world_size`` is how many ranks the job has on all its nodes; ``ranks`` of them are in this
    run.
    """

    run: str
    job: str
    node: str
    command: str
    started_ns: int
    ranks: int
    world_size: int

    @property
    def is_part(self) -> bool:
        """Whether other nodes have runs of the same job at the same time."""
        return self.world_size > self.ranks


PhaseKey = tuple[str, int, str]
"""A run, the day, and a phase of it; day 0 is the last one looked at."""
FunctionKey = tuple[bool, str, str, str, str]
"""Whether it is the innermost of all or of the user's code.

The job, the function, its file, and a phase.
"""
RuleKey = tuple[str, str]
"""A job, and a rule that found something in it."""


class Spent(msgspec.Struct, frozen=True):
    """Time of ranks, and of their GPUs; ``lost`` of it while GPUs were idle.

    If nobody read how busy they were, the time of phases that leave them idle is lost.
    ``gpu_idle_ns`` is the measured part of ``gpu_lost_ns``. ``runs`` is how many runs it is from.
    """

    rank_ns: int = 0
    gpu_ns: int = 0
    lost_ns: int = 0
    gpu_lost_ns: int = 0
    gpu_idle_ns: int = 0
    runs: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class RuleCost(msgspec.Struct, frozen=True):
    """What a rule found in some runs of a job: what a fix can give back at most."""

    label: str = ""
    runs: int = 0
    lost_ns: int = 0
    gpu_lost_ns: int = 0

    def plus(self, other: RuleCost) -> RuleCost:
        label, lost_ns = max(self.label, other.label), self.lost_ns + other.lost_ns
        gpu_lost_ns = self.gpu_lost_ns + other.gpu_lost_ns
        return RuleCost(label, self.runs + other.runs, lost_ns, gpu_lost_ns)


class Stepped(msgspec.Struct, frozen=True):
    """Millionths of steps, and the time that they took."""

    microsteps: int
    duration_ns: int


class Partial(msgspec.Struct, frozen=True):
    """The sums of some runs, as pairs of keys and values; steps by run and day."""

    runs: list[RunPart] = []
    phases: list[tuple[PhaseKey, Spent]] = []
    steps: list[tuple[str, int, Stepped]] = []
    functions: list[tuple[FunctionKey, Spent]] = []
    findings: list[tuple[RuleKey, RuleCost]] = []


def merged(parts: Iterable[Partial]) -> Partial:
    """Return the sums of all parts, in an order of its own; no run is in two of them."""
    whole = Partial()
    functions, findings = dict[FunctionKey, Spent](), dict[RuleKey, RuleCost]()
    for part in parts:
        whole.runs.extend(part.runs)
        whole.phases.extend(part.phases)
        whole.steps.extend(part.steps)
        for function, spent in part.functions:
            functions[function] = functions.get(function, Spent()).plus(spent)
        for rule, found in part.findings:
            findings[rule] = findings.get(rule, RuleCost()).plus(found)
    return Partial(
        sorted(whole.runs, key=attrgetter("run")),
        sorted(whole.phases, key=itemgetter(0)),
        sorted(whole.steps, key=itemgetter(0, 1)),
        sorted(functions.items(), key=itemgetter(0)),
        sorted(findings.items(), key=itemgetter(0)),
    )


IDLING = (DATA_WAIT, DATA_LOAD, COLLECTIVE, CHECKPOINT, LOGGING, COMPILE, STARTUP, WAITING)
"""Phases that leave a GPU idle, if nobody read how busy it was."""
_QUERIES = {
    # Of those that had one PID after the other, the most GPUs.
    "runs": """
    CREATE TABLE trainer AS
    SELECT run, pid, max(name) AS name, max(host) AS host, max(command) AS command,
        min(started_ns) AS started_ns, max(gpus) AS gpus, coalesce(max(world_size), 1) AS world_size
    FROM read_parquet($files, hive_partitioning = false)
    GROUP BY run, pid
    """,
    "stacks": """
    CREATE TABLE stack AS
    SELECT run, stack, phase, function, file, user_function, user_file
    FROM read_parquet($files, hive_partitioning = false)
    """,
    # The one query that reads all rows; what stands in it decides how long a fleet takes.
    "samples": """
    CREATE TABLE spent AS
    SELECT run, pid, ($until - 1 - minute_ns) // 86400000000000 AS day, stack,
        sum(time_ns) AS time_ns, sum(gpu_known_ns) AS known_ns, sum(gpu_idle_ns) AS idle_ns
    FROM read_parquet($files, hive_partitioning = false)
    WHERE is_main AND role = 'main' AND minute_ns < $until AND minute_ns >= $since
    GROUP BY ALL
    """,
    # A GPU is lost while it is idle; if nobody read it, while its rank is in a phase that leaves
    # it idle.
    "hours": """
    CREATE TABLE hours AS
    SELECT name AS job, run, day, phase, function, file,
        coalesce(user_function, function) AS user_function, coalesce(user_file, file) AS user_file,
        sum(time_ns) AS rank_ns, sum(time_ns * gpus) AS gpu_ns,
        sum(idle_ns + unknown_ns) AS lost_ns,
        sum((idle_ns + unknown_ns) * gpus) AS gpu_lost_ns, sum(idle_ns * gpus) AS gpu_idle_ns
    FROM (
        SELECT *, CASE WHEN list_contains($idling, phase)
            THEN greatest(time_ns - known_ns, 0) ELSE 0 END AS unknown_ns
        FROM spent JOIN stack USING (run, stack) JOIN trainer USING (run, pid)
    )
    GROUP BY ALL
    """,
    # In millionths, so that sums are exact.
    "steps": """
    CREATE TABLE step AS
    SELECT run, ($until - 1 - at_ns) // 86400000000000 AS day,
        sum(CAST(round(steps * 1e6) AS BIGINT)) AS microsteps, sum(duration_ns) AS duration_ns
    FROM read_parquet($files, hive_partitioning = false)
    WHERE at_ns < $until AND at_ns >= $since
    GROUP BY ALL
    """,
    "findings": """
    CREATE TABLE finding AS
    SELECT name AS job, rule, max(label) AS label, count(DISTINCT run) AS runs,
        sum(lost_ns) AS lost_ns, sum(gpu_lost_ns) AS gpu_lost_ns
    FROM read_parquet($files, hive_partitioning = false)
    JOIN (SELECT DISTINCT run, name FROM trainer) USING (run)
    WHERE from_ns < $until AND from_ns >= $since
    GROUP BY job, rule
    """,
}
"""Queries for the sums over whole runs, by the table that each reads, if it reads one.

Sums are small enough to be kept for all runs. Each run is reduced by one query alone, and only
integers are added up over runs: so their grouping and order do not matter. ``$files`` are those of
the table. Day 0 is the last one of [$since, $until).
"""
_SPENT = "sum(rank_ns), sum(gpu_ns), sum(lost_ns), sum(gpu_lost_ns), sum(gpu_idle_ns)"


_RUNS = """
    SELECT run, max(name), max(host), max(command), min(started_ns), count(*), max(world_size)
    FROM trainer GROUP BY run
"""
_PHASES = f"SELECT run, day, phase, {_SPENT}, 1 FROM hours GROUP BY run, day, phase"
_FUNCTIONS = f"""
    SELECT true, job, function, file, phase, {_SPENT}, count(DISTINCT run) FROM hours GROUP BY ALL
    UNION ALL
    SELECT false, job, user_function, user_file, phase, {_SPENT}, count(DISTINCT run)
    FROM hours GROUP BY ALL
"""


def reduce_runs(
    data: DataSet, time: TimeRange, memory_bytes: int, runs: Sequence[Manifest]
) -> Partial:
    """Return the sums of runs over a time, in so much memory at most.

    Raises MissingTool without DuckDB, RunUnreadable if files cannot be read.
    """
    with _connected(data, memory_bytes) as (database, folder):
        given: dict[str, Any] = {"until": time.to_ns, "since": time.from_ns}
        given["idling"] = list(IDLING)
        for table, sql in _QUERIES.items():
            if table in TABLES:
                places = [data.place(path) for run in runs for path in run.paths(table)]
                given["files"] = places or [str(empty_file(table, folder / table))]
            database.execute(
                sql, {name: value for name, value in given.items() if f"${name}" in sql}
            )

        def rows(sql: str) -> list[Any]:
            return database.execute(sql).fetchall()

        return Partial(
            runs=[RunPart(*row) for row in rows(_RUNS)],
            phases=[(row[:3], Spent(*row[3:])) for row in rows(_PHASES)],
            steps=[(run, day, Stepped(*sums)) for run, day, *sums in rows("SELECT * FROM step")],
            functions=[(row[:5], Spent(*row[5:])) for row in rows(_FUNCTIONS)],
            findings=[(row[:2], RuleCost(*row[2:])) for row in rows("SELECT * FROM finding")],
        )


@contextlib.contextmanager
def _connected(
    data: DataSet, memory_bytes: int
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Give a database in memory, bounded, and a temporary folder.

    Raises RunUnreadable if a query fails.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingTool("this needs DuckDB, not installed here", install_extra("fleet")) from None
    with tempfile.TemporaryDirectory(prefix="profd-") as folder, duckdb.connect() as database:
        database.execute(f"SET memory_limit = '{memory_bytes}B'")
        database.execute(f"SET temp_directory = '{folder}/spilled'")
        database.execute("SET preserve_insertion_order = false")
        if data.file_system is not None:
            database.register_filesystem(data.file_system)
        try:
            yield database, Path(folder)
        except duckdb.OutOfMemoryException:
            what = f"the data set cannot be read within {size(memory_bytes)}"
            raise RunUnreadable(what, "allow more with --memory GB") from None
        except duckdb.Error as error:
            # DuckDB hands on whole tracebacks of file systems: the line that says what failed is
            # the first below.
            why, *others = str(error).splitlines() or [""]
            if why.startswith("Traceback"):
                why = next((line for line in others if line and not line[0].isspace()), why)
            raise RunUnreadable(
                f"the data set {data.url} cannot be read ({why})", "export its runs again"
            ) from None
