"""Which run files of a folder are the nodes of one job, and the job as one run."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from profd.daemon.analyze.clocks import take_offsets
from profd.daemon.errors import NoSuchRun, OutputUnwritable, RunUnreadable, UsageError
from profd.daemon.paths import SUFFIX
from profd.daemon.store.merge import JoinedNode, join_runs
from profd.daemon.store.reader import RunReader

_NAMED = 12


class NodeFile(msgspec.Struct, frozen=True):
    """A run file of a job: what profd recorded on one node.

    ``job`` is the launcher's name of the job on all ranks, ``world_size`` the number of ranks; None
    if it did not say.
    """

    path: Path
    run: str
    host: str
    command: tuple[str, ...]
    started_ns: int
    ranks: frozenset[int]
    world_size: int | None
    job: str | None

    @property
    def is_whole(self) -> bool:
        """Whether this file has all ranks of the job, or belongs to no job."""
        return not self.ranks or (
            self.world_size is not None and len(self.ranks) >= self.world_size
        )


class FoundJob(msgspec.Struct, frozen=True):
    """The files of one job, ordered by their lowest ranks; ``name`` is unique in the folder."""

    name: str
    files: tuple[NodeFile, ...]


class Folder(msgspec.Struct, frozen=True):
    """The jobs in a folder in order of time, and why some files were left out."""

    path: Path
    jobs: tuple[FoundJob, ...]
    left_out: tuple[str, ...]

    def choose(self, name: str | None) -> FoundJob:
        """Return the job of this name, or the only one whose name begins so, or the only one.

        Raises UsageError if it could be several, and NoSuchRun if it is none.
        """
        if not self.jobs:
            raise NoSuchRun(
                f"there is no readable run file in {self.path}",
                "see `profd ls` for the runs there are",
            )
        exact = [job for job in self.jobs if job.name == name]
        found = exact or [job for job in self.jobs if name is None or job.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(job.name for job in self.jobs[:_NAMED]) + (
            ", …" if len(self.jobs) > _NAMED else ""
        )
        if not found:
            raise NoSuchRun(f"no job in {self.path} is called {name}", f"it holds: {known}")
        raise UsageError(
            f"{self.path} holds {len(self.jobs)} jobs", f"choose one with --job NAME, of: {known}"
        )


def read_folder(folder: Path) -> Folder:
    """Return the jobs of the run files that lie in a folder."""
    files, left_out = list[NodeFile](), list[str]()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            files.append(_read(path))
        except RunUnreadable as error:
            left_out.append(error.what)
    return Folder(folder, join(files), tuple(left_out))


def join(files: Iterable[NodeFile]) -> tuple[FoundJob, ...]:
    """Return the jobs in order of time.

    A job is the files of one name, up to the first that has a rank a second time.
    """
    by_key: defaultdict[tuple[object, ...], list[NodeFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.started_ns):
        by_key[_job_key(file)].append(file)
    attempts: list[list[NodeFile]] = []
    for group in by_key.values():
        attempt: list[NodeFile] = []
        for file in group:
            if not attempt or any(file.ranks & other.ranks for other in attempt):
                attempts.append(attempt := [])
            attempt.append(file)
    attempts.sort(key=lambda attempt: attempt[0].started_ns)
    jobs, times = list[FoundJob](), Counter[str]()
    for attempt in attempts:
        name = _job_name(attempt[0])
        again = times[name]
        times[name.partition("#")[0]] += 1
        nodes = sorted(attempt, key=lambda file: (min(file.ranks, default=0), file.run))
        jobs.append(FoundJob(f"{name}#{again + 1}" if again else name, tuple(nodes)))
    return tuple(jobs)


def _job_key(file: NodeFile) -> tuple[object, ...]:
    """Return what the files of a job have in common."""
    if file.is_whole:
        return file.run, str(file.path)
    if file.job is None:
        return file.command, file.world_size
    # Ranks that meet on the loopback address are on one host; others may use the same port on
    # theirs.
    is_local = file.job.startswith(("localhost:", "127.", "::1:"))
    return file.job, file.host if is_local else None


def _job_name(file: NodeFile) -> str:
    """Return the launcher's name of a job, or the id of its first run.

    The name is printed, and may come from anywhere.
    """
    given = file.job if file.job is not None and not file.is_whole else file.run
    return "".join(character if character.isprintable() else "?" for character in given)


def _read(path: Path) -> NodeFile:
    with RunReader(path) as reader:
        mains = [row for row in reader.processes.values() if row.is_main and row.rank is not None]
        sizes = [
            place.world_size
            for place in reader.placements().values()
            if place.world_size is not None
        ]
        job = reader.value(
            str | None, "SELECT name FROM pragma_table_info('placement') WHERE name = 'job'"
        )
        if job is not None:  # a file older than the column has none
            sql = "SELECT job FROM placement WHERE job IS NOT NULL ORDER BY process DESC LIMIT 1"
            job = reader.value(str | None, sql)
        ranks, info = frozenset(row.rank for row in mains if row.rank is not None), reader.info
        about = info.id, info.host, info.command, info.started_ns
        return NodeFile(path, *about, ranks, world_size=max(sizes, default=None), job=job)


@contextlib.contextmanager
def open_job(job: FoundJob) -> Iterator[RunReader]:
    """Give a reader of all files of a job.

    Raises RunUnreadable, and OutputUnwritable if there is no room for the joined file.
    """
    with contextlib.ExitStack() as open_files:
        if len(job.files) == 1:
            yield open_files.enter_context(RunReader(job.files[0].path))
            return
        try:
            folder = tempfile.TemporaryDirectory(prefix="profd-")
        except OSError as error:
            what, remedy = (
                "cannot make a temporary folder",
                "set TMPDIR to one that you can write to",
            )
            raise OutputUnwritable.of_system(what, error, remedy) from error
        # A name from a file could be ../../anything.
        path = Path(open_files.enter_context(folder)) / f"job{SUFFIX}"
        join_files(job, path)
        yield open_files.enter_context(RunReader(path))


def join_files(job: FoundJob, path: Path) -> None:
    """Write the files of a job to a new one, their clocks aligned; raises as ``open_job`` does."""
    with contextlib.ExitStack() as open_files:
        readers = [open_files.enter_context(RunReader(file.path)) for file in job.files]
        for reader in readers:
            open_files.enter_context(reader.one_moment())
        several, seen = Counter(reader.info.host for reader in readers), Counter[str]()
        nodes = []
        for number, (reader, offset) in enumerate(zip(readers, take_offsets(readers), strict=True)):
            host = reader.info.host
            seen[host] += 1
            name = f"{host}/{seen[host]}" if several[host] > 1 else host
            nodes.append(JoinedNode(number, name, reader.info.id, *offset))
        join_runs(readers, nodes, f"{job.name} on {len(readers)} nodes", path)
