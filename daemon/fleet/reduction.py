"""Reduces the runs of a data set by DuckDB: to what they cost, and to how fast they step."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from profd.daemon.clock import HOUR_NS
from profd.daemon.errors import MissingTool, RunUnreadable
from profd.daemon.fleet.answers import FindingCost, FunctionCost, Hours, PhaseCost
from profd.daemon.fleet.dataset import TABLES, DataSet, Manifest
from profd.daemon.fleet.export import empty_file
from profd.daemon.installation import install_extra
from profd.daemon.timerange import TimeRange
from profd.daemon.units import size

if TYPE_CHECKING:
    import duckdb


class RunPart(NamedTuple):
    """A run of one node: its job, and where and when it ran."""

    run: str
    job: str
    node: str
    command: str


class Stepped(NamedTuple):
    """Millionths of steps, and the time that they took."""

    microsteps: int
    duration_ns: int


class Reduced(NamedTuple):
    """What runs cost, the largest loss or cost first, and by run and day how fast they step.

    Day 0 is the last one. ``phase_ns`` is the time of ranks in each phase.
    """

    runs: list[RunPart]
    hours: Hours
    phases: tuple[PhaseCost, ...]
    findings: tuple[FindingCost, ...]
    functions: tuple[FunctionCost, ...]
    leaves: tuple[FunctionCost, ...]
    steps: Mapping[str, Mapping[int, Stepped]]
    phase_ns: Mapping[str, Mapping[int, Counter[str]]]


IDLING = (DATA_WAIT, DATA_LOAD, COLLECTIVE, CHECKPOINT, LOGGING, COMPILE, STARTUP, WAITING)
"""Phases that leave a GPU idle, if nobody read how busy it was."""
_QUERIES = {
    # Of those that had one PID after the other, the most GPUs.
    "runs": """
    CREATE TABLE trainer AS
    SELECT run, pid, max(name) AS name, max(host) AS host, max(command) AS command,
        max(gpus) AS gpus
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
"""Queries for the sums of each run, by the table that each reads, if it reads one.

Only integers are added up, so their order does not matter. ``$files`` are those of the table. Day 0
is the last one of [$since, $until).
"""
_RUNS = """
    SELECT run, max(name), max(host), max(command)
    FROM trainer GROUP BY run ORDER BY run
"""
_SPENT = """
    sum(rank_ns) AS ranks, sum(gpu_ns) AS gpus, sum(lost_ns) AS ranks_lost,
    sum(gpu_lost_ns) AS gpus_lost, sum(gpu_idle_ns) AS gpus_idle FROM hours
"""
_PHASES = f"""
    SELECT phase, count(DISTINCT job), {_SPENT} GROUP BY phase
    ORDER BY gpus_lost DESC, ranks_lost DESC, gpus DESC, ranks DESC, phase
"""
_FUNCTIONS = f"""
    SELECT {{0}}function, {{0}}file, phase, count(DISTINCT job), count(DISTINCT run), {_SPENT}
    GROUP BY 1, 2, 3 ORDER BY gpus DESC, ranks DESC, 1, 2, 3 LIMIT 20
"""
_FINDINGS = """
    SELECT rule, last(label ORDER BY gpu_lost_ns, lost_ns, job), sum(lost_ns) AS ranks_lost,
        sum(gpu_lost_ns) AS gpus_lost, count(*), sum(runs) AS runs,
        last(job ORDER BY gpu_lost_ns, lost_ns, job)
    FROM finding GROUP BY rule ORDER BY gpus_lost DESC, ranks_lost DESC, runs DESC, rule
"""
_PHASE_DAYS = "SELECT run, day, phase, sum(rank_ns) FROM hours GROUP BY ALL"


def reduce_runs(
    data: DataSet, time: TimeRange, memory_bytes: int, runs: Sequence[Manifest]
) -> Reduced:
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

        def functions(of: str) -> tuple[FunctionCost, ...]:
            return tuple(
                FunctionCost(function, file, phase, _hours(sums), jobs, runs)
                for function, file, phase, jobs, runs, *sums in rows(_FUNCTIONS.format(of))
            )

        steps: defaultdict[str, dict[int, Stepped]] = defaultdict(dict)
        for run, day, *stepped in rows("SELECT * FROM step"):
            steps[run][day] = Stepped(*stepped)
        phase_ns: defaultdict[str, defaultdict[int, Counter[str]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        for run, day, phase, rank_ns in rows(_PHASE_DAYS):
            phase_ns[run][day][phase] = rank_ns
        return Reduced(
            [RunPart(*row) for row in rows(_RUNS)],
            _hours(rows(f"SELECT {_SPENT}")[0]),
            tuple(PhaseCost(phase, _hours(sums), jobs) for phase, jobs, *sums in rows(_PHASES)),
            tuple(
                FindingCost(rule, label, lost_ns / HOUR_NS, gpu_lost_ns / HOUR_NS, *others)
                for rule, label, lost_ns, gpu_lost_ns, *others in rows(_FINDINGS)
            ),
            functions("user_"),
            functions(""),
            steps,
            phase_ns,
        )


def _hours(sums: Iterable[int | None]) -> Hours:
    """Return sums of nanoseconds as hours; without any row they are None."""
    return Hours(*((time_ns or 0) / HOUR_NS for time_ns in sums))


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
