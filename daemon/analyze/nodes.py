"""Which run files of a folder are the nodes of one job, and the job as one run."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon.analyze.clocks import take_offsets
from profd.daemon.errors import NoSuchRun, OutputUnwritable, RunUnreadable, UsageError
from profd.daemon.paths import SUFFIX
from profd.daemon.store.merge import JoinedNode, join_runs
from profd.daemon.store.reader import RunReader

_LOOPBACK = ("localhost:", "127.", "::1:")
_NAMED = 12


class NodeFile(msgspec.Struct, frozen=True):
    """A run file of a job: what profd recorded on one node.

    ``job`` is what the launcher told all ranks of the job alike, ``world_size`` how many they are; None where it did
    not say.
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
        """Whether all ranks of the job are in this file, or it is of no job at all."""
        return not self.ranks or (self.world_size is not None and len(self.ranks) >= self.world_size)


class FoundJob(msgspec.Struct, frozen=True):
    """The files of one job, in the order of their lowest ranks; ``name`` tells it from others of the folder."""

    name: str
    files: tuple[NodeFile, ...]


class Folder(msgspec.Struct, frozen=True):
    """What a folder holds: jobs in order of time, and why some files were left out."""

    path: Path
    jobs: tuple[FoundJob, ...]
    left_out: tuple[str, ...]

    def choose(self, name: str | None) -> FoundJob:
        """Return the job of this name, or of which it is the only beginning; the only one where none is named.

        Raises UsageError where it could be several, and NoSuchRun where it is none.
        """
        if not self.jobs:
            raise NoSuchRun(f"there is no readable run file in {self.path}", "see `profd ls` for the runs there are")
        exact = [job for job in self.jobs if job.name == name]
        found = exact or [job for job in self.jobs if name is None or job.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        known = ", ".join(job.name for job in self.jobs[:_NAMED]) + (", …" if len(self.jobs) > _NAMED else "")
        if not found:
            raise NoSuchRun(f"no job in {self.path} is called {name}", f"it holds: {known}")
        raise UsageError(f"{self.path} holds {len(self.jobs)} jobs", f"choose one with --job NAME, of: {known}")


def read_folder(folder: Path) -> Folder:
    """Return the jobs of the run files that lie in a folder."""
    files: list[NodeFile] = []
    left_out: list[str] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            files.append(_read(path))
        except RunUnreadable as error:
            left_out.append(error.what)
    return Folder(folder, join(files), tuple(left_out))


def join(files: Iterable[NodeFile]) -> tuple[FoundJob, ...]:
    """Return the jobs that files are of, in order of time.

    Those of one name are one job, up to the first that has a rank a second time: that is the same job once more.
    """
    by_key: defaultdict[tuple[object, ...], list[NodeFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.started_ns):
        by_key[_key(file)].append(file)
    attempts = [attempt for group in by_key.values() for attempt in _attempts(group)]
    attempts.sort(key=lambda attempt: attempt[0].started_ns)
    names = _names(attempts)
    return tuple(
        FoundJob(name, tuple(sorted(attempt, key=lambda file: (min(file.ranks, default=0), file.run))))
        for name, attempt in zip(names, attempts, strict=True)
    )


def _key(file: NodeFile) -> tuple[object, ...]:
    """Return what the files of a job have in common, of all that are told."""
    if file.is_whole:
        return (file.run, str(file.path))
    if file.job is None:
        return (file.command, file.world_size)
    # Who meets on the loopback address is on one host; others may use the same port on theirs.
    return (file.job, file.host if file.job.startswith(_LOOPBACK) else None)


def _attempts(files: Iterable[NodeFile]) -> Iterator[list[NodeFile]]:
    """Yield the files of each time that a job ran; ``files`` are in order of time."""
    attempt: list[NodeFile] = []
    for file in files:
        if any(file.ranks & other.ranks for other in attempt):
            yield attempt
            attempt = []
        attempt.append(file)
    yield attempt


def _names(attempts: Sequence[Sequence[NodeFile]]) -> list[str]:
    """Return a name for each job: what its launcher calls it, else the id of its first run, numbered if told twice."""
    names: list[str] = []
    for attempt in attempts:
        first = attempt[0]
        told = first.job if first.job is not None and not first.is_whole else first.run
        # It is printed, and may come from anywhere.
        name = "".join(character if character.isprintable() else "?" for character in told)
        again = sum(known.partition("#")[0] == name for known in names)
        names.append(f"{name}#{again + 1}" if again else name)
    return names


class _JobRow(msgspec.Struct, frozen=True):
    job: str | None


def _read(path: Path) -> NodeFile:
    with RunReader(path) as reader:
        mains = [row for row in reader.processes.values() if row.role == "main" and row.rank is not None]
        sizes = [place.world_size for place in reader.placements().values() if place.world_size is not None]
        return NodeFile(
            path=path,
            run=reader.info.id,
            host=reader.info.host,
            command=reader.info.command,
            started_ns=reader.info.started_ns,
            ranks=frozenset(row.rank for row in mains if row.rank is not None),
            world_size=max(sizes, default=None),
            job=_job(reader),
        )


def _job(reader: RunReader) -> str | None:
    """Return the job that a file's ranks were told; None from a file that is older than its column."""
    if not reader.select(_JobRow, "SELECT name FROM pragma_table_info('placement') WHERE name = 'job'"):
        return None
    rows = reader.select(_JobRow, "SELECT job FROM placement WHERE job IS NOT NULL ORDER BY process DESC LIMIT 1")
    return rows[0][0] if rows else None


@contextlib.contextmanager
def open_job(job: FoundJob) -> Iterator[RunReader]:
    """Give a reader of all files of a job; of one that has a single file it is that file's.

    Raises RunUnreadable, and OutputUnwritable where there is no room for the joined file.
    """
    with contextlib.ExitStack() as open_files:
        if len(job.files) == 1:
            yield open_files.enter_context(RunReader(job.files[0].path))
            return
        # Not named by what stands in a file: one from elsewhere could say ../../anything.
        path = open_files.enter_context(_scratch()) / f"job{SUFFIX}"
        join_files(job, path)
        yield open_files.enter_context(RunReader(path))


def join_files(job: FoundJob, path: Path) -> None:
    """Write the files of a job to a new one, their clocks aligned; raises as ``open_job`` does."""
    with contextlib.ExitStack() as open_files:
        readers = [open_files.enter_context(RunReader(file.path)) for file in job.files]
        for reader in readers:
            open_files.enter_context(reader.one_moment())
        name = f"{job.name} on {len(readers)} nodes"
        join_runs(readers, _nodes(readers), name, path)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Give a folder of ours that is removed afterwards."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="profd-")
    except OSError as error:
        raise OutputUnwritable(
            f"cannot make a temporary folder ({error.strerror})", "set TMPDIR to a folder that you can write to"
        ) from error
    with folder as name:
        yield Path(name)


def _nodes(readers: Sequence[RunReader]) -> list[JoinedNode]:
    """Return the nodes by their hosts; several runs on one host are told apart by numbers."""
    hosts = [reader.info.host for reader in readers]
    several, seen = Counter(hosts), Counter[str]()
    found = []
    for number, (reader, offset) in enumerate(zip(readers, take_offsets(readers), strict=True)):
        host = hosts[number]
        seen[host] += 1
        found.append(
            JoinedNode(
                number=number,
                host=f"{host}/{seen[host]}" if several[host] > 1 else host,
                run=reader.info.id,
                offset_ns=offset.offset_ns,
                error_ns=offset.error_ns,
                source=offset.source,
                matched=offset.matched,
            )
        )
    return found
