"""What is written and read under faults: each subject is done once with a fault in it, then judged."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from support import synthetic
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, STEP, main_process, recording, worker
from support.training_stacks import describe

from profd.daemon import paths
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable, ProfdError, RunUnreadable
from profd.daemon.events import EventKind
from profd.daemon.exports.formats import FORMATS, write_tables
from profd.daemon.paths import write_whole
from profd.daemon.render.report import write_report
from profd.daemon.render.summary import summarize
from profd.daemon.service.storage import Entry, RunRegistry, boot_id
from profd.daemon.session.livefile import LiveFile
from profd.daemon.store import database
from profd.daemon.store import writer as writer_module
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    EventHappened,
    OutputWritten,
    Point,
    PointsTaken,
    ProcessEnded,
    ProcessSeen,
    Record,
    RunEnded,
)
from profd.daemon.store.writer import RunWriter

KINDS = ("open", "read", "write", "sync", "truncate", "rename", "link", "lock", "map", "allocate")
"""As in faults.c, counted from 1."""
SHORT = -1
ERRORS: dict[str, tuple[int, ...]] = {
    "open": (errno.ENOSPC, errno.EMFILE, errno.EIO, errno.EINTR),
    "read": (errno.EIO, errno.EINTR),
    "write": (errno.ENOSPC, errno.EIO, SHORT, errno.EINTR),
    "sync": (errno.EIO, errno.EINTR),
    "truncate": (errno.EIO, errno.EINTR),
    "rename": (errno.ENOSPC, errno.EIO),
    "link": (errno.EIO,),
    "lock": (errno.EAGAIN, errno.EIO),
    "map": (errno.ENOMEM,),
    "allocate": (errno.ENOMEM,),
}
ONCE, WHILE, FOREVER = "once", "for a while", "for good"
PATIENCE_S = 0.03
"""For so long what lasts a while lasts, and so long is waited for what will not be."""


class Fault(NamedTuple):
    """The n-th call of a kind fails, once, until it is lifted, or for good."""

    kind: str
    error: int
    number: int
    lasts: str

    def __str__(self) -> str:
        error = "short" if self.error == SHORT else errno.errorcode[self.error]
        return f"{self.kind} {self.number} fails with {error} {self.lasts}"


class Broken(Exception):
    """What must hold after a fault does not."""


class Subject(NamedTuple):
    """Something that is tried: ``act`` does it in a folder of its own and calls ``arm`` where
    faults may begin.

    ``act`` gets what lifts the fault. It raises Broken, or whatever breaks out, where something
    does not hold; it returns how the case ended.
    """

    act: Callable[[Path, Fault, Callable[[], object], Callable[[], object]], str]
    lasting: tuple[str, ...] = (ONCE,)


def subjects() -> dict[str, Subject]:
    """Return all subjects."""
    return {
        "writer": Subject(WriterSubject().act, (ONCE, WHILE, FOREVER)),
        "live file": Subject(_settle),
        "register": Subject(_register),
        "report": Subject(_report),
        "reader": Subject(_read),
        "export": Subject(_export),
        "tables": Subject(_export_tables),
    }


# The writer


def _records() -> list[Record]:
    """Return the records of a run of some minutes: every table that matters gets rows, and sums are
    completed.
    """
    found: list[Record] = [
        main_process(),
        ProcessSeen(
            worker(1), MAIN, ("python", "train.py"), "worker", None, 1, "3.11.7", STARTED_NS
        ),
        EventHappened(STARTED_NS, EventKind.STARTED, "python train.py", MAIN),
    ]
    for number in range(8):
        at_ns = STARTED_NS + number * 17 * SECOND_NS
        found.append(recording(MAIN, at_ns, [(MAIN_TID, "MainThread", True, STEP)]))
        values = (Point("cpu_cores", 0.5 + number, MAIN), Point("cpu_cores", 0.7, MAIN, MAIN_TID))
        found.append(
            PointsTaken(
                at_ns + SECOND_NS,
                (*values, Point("gpu_utilization_share", 0.1 * number, device="0")),
            )
        )
        found.append(OutputWritten(at_ns + SECOND_NS, b"step\n" * 50))
    end_ns = STARTED_NS + 140 * SECOND_NS
    return [
        *found,
        ProcessEnded(worker(1), end_ns, 0),
        ProcessEnded(MAIN, end_ns, 0),
        RunEnded(end_ns, "stopped"),
    ]


class WriterSubject:
    """A run is written: what was committed stays, and when a fault is over the file is as if it had
    not been.
    """

    def __init__(self) -> None:
        self._records = _records()
        self._states: list[dict[str, list[object]]] = []

    def act(
        self, folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
    ) -> str:
        """Write the run, and compare the file with that of a run without faults."""
        if not self._states:
            self._states = self._take_states()
        path = folder / "run.profd"
        with _hurried():
            arm()
            try:
                writer = RunWriter(path, synthetic.run_started(), describe)
            except OutputUnwritable:
                lift()
                if (
                    any(folder.iterdir()) and fault.kind != "link"
                ):  # which keeps what was made from being removed, too
                    raise Broken(f"left behind: {list(folder.iterdir())}") from None
                return "refused"
            confirmed = self._feed(writer, fault.lasts)
            writer.close(PATIENCE_S if fault.lasts == FOREVER else 60.0)
            writer._thread.join(60.0)  # else it would go on where the fault is lifted
            lift()
        if writer._thread.is_alive():
            raise Broken("the writer hangs")
        return self._judge(path, fault.lasts, writer, confirmed)

    def _feed(self, writer: RunWriter, lasts: str) -> int:
        """Hand over the records, each once the one before is committed; return how many were."""
        commits = _Commits(writer)
        for number, record in enumerate(self._records, 1):
            if not writer.put(record):
                return commits.count
            if not commits.wait(number, writer, until_trouble=lasts == FOREVER):
                if lasts == FOREVER:
                    return commits.count
                raise Broken(f"it does not go on: {writer.failure or writer.trouble}")
        return len(self._records)

    def _judge(self, path: Path, lasts: str, writer: RunWriter, confirmed: int) -> str:
        state = _state_of(path)
        if lasts != FOREVER and writer.failure:
            raise Broken(f"it ended: {writer.failure}")
        if lasts != FOREVER or not writer.failure:
            if state != self._states[-1]:
                raise Broken(f"it differs in {_differences(state, self._states[-1])}")
            return "whole"
        if state not in self._states[confirmed:]:
            raise Broken(f"of {confirmed} commits: {_differences(state, self._states[confirmed])}")
        return "cut off, and said"

    def _take_states(self) -> list[dict[str, list[object]]]:
        """Return what the file holds after each commit, and at the end."""
        with tempfile.TemporaryDirectory() as folder, _hurried():
            path = Path(folder) / "run.profd"
            writer = RunWriter(path, synthetic.run_started(), describe)
            commits, states = _Commits(writer), [_state_of(path)]
            for number, record in enumerate(self._records, 1):
                writer.put(record)
                commits.wait(number, writer)
                states.append(_state_of(path))
            writer.close()
            return [*states, _state_of(path)]


class _Commits:
    """Counts what a writer has committed."""

    def __init__(self, writer: RunWriter) -> None:
        self.count = 0
        self._changed = threading.Condition()
        self._commit = writer._tables.commit
        writer._tables.commit = self._counted  # type: ignore[method-assign]

    def _counted(self, batch: Sequence[Record]) -> None:
        self._commit(batch)
        with self._changed:
            self.count += len(batch)
            self._changed.notify_all()

    def wait(self, count: int, writer: RunWriter, *, until_trouble: bool = False) -> bool:
        """Wait until so many records were committed; False where they will not be."""
        deadline_s = time.monotonic() + 60
        with self._changed:
            while self.count < count and writer.failure is None and time.monotonic() < deadline_s:
                if until_trouble and writer.trouble:
                    break
                self._changed.wait(PATIENCE_S)
            return self.count >= count


@contextlib.contextmanager
def _hurried() -> Iterator[None]:
    """Have a writer commit readings as they come, and try again at once."""
    with (
        mock.patch.object(writer_module, "WATCHED_GATHER_S", 0.0),
        mock.patch.object(writer_module, "FIRST_WAIT_S", 0.0005),
        mock.patch.object(writer_module, "LONGEST_WAIT_S", 0.002),
        mock.patch.object(database, "LOCK_TIMEOUT_S", 0.005),
    ):
        yield


def _state_of(path: Path) -> dict[str, list[object]]:
    """Return all rows of a run file, which has to be sound and to open for its readers."""
    with RunReader(path) as reader:
        reader.recordings()
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    with contextlib.closing(connection):
        if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise Broken("the file is damaged")
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr)
            for table in tables
        }


def _differences(one: dict[str, list[object]], other: dict[str, list[object]]) -> str:
    return ", ".join(table for table in other if one.get(table) != other[table])


# What is written once


def _settle(
    folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    """Move a run to a network at its end: after a fault it is still found, and the next try moves
    it.
    """
    wanted = folder / "run.profd"
    with (
        tempfile.TemporaryDirectory(dir=disks()[1]) as local,
        mock.patch.object(paths, "is_on_network", return_value=True),
        mock.patch.object(tempfile, "gettempdir", return_value=local),
    ):
        arm()
        try:
            live_file = LiveFile(wanted)
        except ProfdError:
            lift()
            live_file = LiveFile(wanted)
        lift()
        synthetic.write_run(live_file.path, seconds=1, workers=0)
        state = _state_of(wanted)
        arm()
        try:
            live_file.settle()
            ending = "whole"
        except ProfdError:
            lift()
            if _state_of(wanted) != state:
                raise Broken("the run is not where it was") from None
            live_file.settle()
            ending = "said"
        lift()
        if _state_of(wanted) != state or wanted.is_symlink():
            raise Broken("the run was not moved whole")
        if [path.name for path in folder.iterdir()] != [wanted.name]:
            raise Broken(f"left behind: {sorted(path.name for path in folder.iterdir())}")
    return ending


def disks() -> tuple[str, str]:
    """Return a folder in memory, where a case takes no time, and one on another disk, so that
    moving is copying.
    """
    return "/dev/shm", tempfile.gettempdir()


def _register(
    folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    """Replace an entry of the supervisor's, whole or not at all."""
    register = RunRegistry(folder / "daemon" / "host")
    before = Entry("20261120-120000-cifar-3fa9", MAIN, 1, "all", boot_id())
    after = Entry(
        "20261120-120000-cifar-3fa9", MAIN, 1, "all", boot_id(), STARTED_NS + 5, "stopped"
    )
    register.put(before)
    arm()
    try:
        RunRegistry(folder / "daemon" / "host").put(after)
        ending = "whole"
    except ProfdError:
        lift()
        if register.entries() not in ([before], [after]):
            raise Broken("the entry before is gone") from None
        register.put(after)
        ending = "said"
    lift()
    if register.entries() != [after] or len(list((folder / "daemon" / "host").iterdir())) != 1:
        raise Broken(f"the entry is {register.entries()}")
    return ending


def _written(
    path: Path, write: Callable[[], object], arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    """Write a file over another one: whole, or said and the one before is still there."""
    write()
    expected = path.read_bytes()
    path.write_bytes(b"before")
    arm()
    try:
        write()
        ending = "whole"
    except (ProfdError, MemoryError):  # commands say both in a line
        lift()
        if path.read_bytes() != b"before":
            raise Broken("what was there before is gone") from None
        write()
        ending = "said"
    lift()
    if path.read_bytes() != expected or len(list(path.parent.iterdir())) != 1:
        raise Broken(f"it is not whole, or something is left: {list(path.parent.iterdir())}")
    return ending


_RUNS: dict[str, Path] = {}


def _run() -> Path:
    """Return a run file that is made once."""
    if "run" not in _RUNS:
        folder = Path(tempfile.mkdtemp(prefix="profd-faults-"))
        _RUNS["run"] = synthetic.write_run(folder / "run.profd", seconds=2, workers=1)
    return _RUNS["run"]


def _report(
    folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    with RunReader(_run()) as reader:
        return _written(
            folder / "report.html", lambda: write_report(reader, folder / "report.html"), arm, lift
        )


def _export(
    folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    path = folder / "run.pb.gz"
    with RunReader(_run()) as reader:
        return _written(
            path, lambda: write_whole(path, FORMATS["pprof"].made(reader, Selection())), arm, lift
        )


def _export_tables(
    folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]
) -> str:
    """Of a folder of tables each is as it was or as it is to be."""
    place = folder / "tables"

    def write() -> None:
        with RunReader(_run()) as reader:
            write_tables(FORMATS["csv"].made(reader, Selection()), place)

    write()
    expected = {path.name: path.read_bytes() for path in place.iterdir()}
    for name in expected:
        (place / name).write_bytes(b"before")
    arm()
    try:
        write()
        ending = "whole"
    except ProfdError:
        lift()
        if any(
            path.read_bytes() not in (b"before", expected.get(path.name))
            for path in place.iterdir()
        ):
            raise Broken("a table is neither the one before nor the new one") from None
        write()
        ending = "said"
    lift()
    if {path.name: path.read_bytes() for path in place.iterdir()} != expected:
        raise Broken(f"tables are not whole, or something is left: {list(place.iterdir())}")
    return ending


def _read(folder: Path, fault: Fault, arm: Callable[[], object], lift: Callable[[], object]) -> str:
    """Read a run, right or with an error that says why not; afterwards it is read."""
    path = folder / "run.profd"
    path.write_bytes(_run().read_bytes())
    arm()
    try:
        with RunReader(path) as reader:
            summarize(reader)
        ending = "read"
    except RunUnreadable:
        ending = "said"
    lift()
    with RunReader(path) as reader:
        summarize(reader)
    return ending


def clean_up() -> None:
    """Remove what subjects share."""
    for path in _RUNS.values():
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    _RUNS.clear()
