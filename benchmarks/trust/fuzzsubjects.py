"""Everything of profd that reads what others wrote, with sound examples of it and the errors that
are meant for it.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import msgspec
from support import synthetic
from support.kinetotraces import TraceScript
from support.ras import answer_in_json, job_of
from trust.fuzzreaders import Reader, readers
from trust.fuzzschemas import change_schema
from trust.mutations import HOSTILE_VALUES, mutate, mutate_values

from profd.daemon.clock import SECOND_NS
from profd.daemon.collectives.desync import compare
from profd.daemon.collectives.status import BadAnswer, parse
from profd.daemon.errors import ProfdError
from profd.daemon.interpreter.memory import mapped_files
from profd.daemon.naming import is_profd, script_name
from profd.daemon.secrets import mask_command
from profd.daemon.session.control import Request
from profd.daemon.stacks import assembly
from profd.daemon.stacks.dump import decode_dump
from profd.daemon.stacks.pyspy import RawRecording, TraceDamaged, last_timestamp_us
from profd.daemon.steps.declared import Declared
from profd.daemon.store import database
from profd.daemon.store.records import Identity, OperatorTotals, OutputWritten, Record, WindowTaken
from profd.daemon.store.tables import Tables
from profd.daemon.timerange import EVER
from profd.daemon.tree.roles import placement_of
from profd.daemon.userfiles import UserFiles
from profd.daemon.windows import kineto
from profd.daemon.windows.reduction import reduce

SCRIPT = b"""
def train(self, loader, n, args):
    step = 0
    for epoch in range(0, n, 2):
        bar = tqdm(enumerate(loader, 1), total=n)
        for self.i, (x, y) in bar:
            if not x: continue
            loss = model(x)
            loss.backward()
            if (self.i + 1) % args.accumulate == 0:
                self.optimizer.step()
                self.state["step"] += 1
            step = step + 1
            bar.update(1)
while True:
    iter_num += 1
"""
Reading = Callable[[], object]


class Subject(NamedTuple):
    """Something that reads.

    ``seeds`` are what it is meant to read, ``readings`` yields what is to be done with a case, each
    to be called before the next is asked for; ``errors`` are meant for it, ``change`` makes a case.
    """

    seeds: list[bytes]
    readings: Callable[[bytes, random.Random], Iterable[Reading]]
    errors: tuple[type[Exception], ...]
    change: Callable[[bytes, random.Random], bytes] = mutate


def subjects(folder: Path) -> dict[str, Subject]:
    """Return everything that reads; ``folder`` is for run files."""
    run, stored = _run_file(folder), _Stored(folder)
    reads = readers(folder, folder / "seed.profd")

    def run_files(change: Callable[[Path, bytes, random.Random], bytes]) -> Subject:
        return Subject([run], lambda data, chance: _readings(folder, data, reads), (ProfdError,),
                       lambda data, chance: change(folder, data, chance))  # fmt: skip

    def once(
        read: Callable[[bytes], object],
    ) -> Callable[[bytes, random.Random], Iterable[Reading]]:
        return lambda data, chance: (lambda: read(data),)

    def assembled(data: bytes) -> None:
        for record in _assemble(data):
            stored.take(record)

    def reduced(data: bytes) -> None:
        stored.take(_window(data))

    def declared(data: bytes) -> None:
        loops = Declared(_Script(data))
        for line in range(1, data.count(b"\n"), 7):
            loops.function_at("/train.py", f"at {line}", line).around(line)

    def requested(data: bytes) -> None:
        msgspec.json.decode(data, type=Request)

    def answered(data: bytes) -> None:
        compare(parse(_answer()), parse(data))

    misread = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
    return {
        "run-bytes": run_files(lambda folder, data, chance: mutate(data, chance)),
        "run-values": run_files(_changed_run),
        "run-schemas": run_files(_other_schema),
        "recordings": Subject([_recording()], once(assembled), (TraceDamaged,)),
        "recording-values": Subject(
            [_recording()], once(assembled), (TraceDamaged,), mutate_values
        ),
        "dumps": Subject([_dump()], once(decode_dump), (ValueError,)),
        "dump-values": Subject([_dump()], once(decode_dump), (ValueError,), mutate_values),
        "processes": Subject(PROC_FILES, once(_look_at_process), ()),
        "sources": Subject([SCRIPT], once(declared), ()),
        "traces": Subject([_trace()], once(reduced), (ProfdError,)),
        "trace-values": Subject([_trace()], once(reduced), (ProfdError,), mutate_values),
        "datagrams": Subject(_datagrams(), once(kineto.decode), ()),
        "answers": Subject([_answer()], once(answered), (BadAnswer,)),
        "answer-values": Subject([_answer()], once(answered), (BadAnswer,), mutate_values),
        "control": Subject(_requests(), once(requested), misread),
        "control-values": Subject(_requests(), once(requested), misread, mutate_values),
    }


PROC_FILES = [
    b"7f00-7f01 r--p 00000000 08:01 1                  /usr/lib/libpython3.11.so.1.0\n" * 3,
    b"/venv/bin/python\0-E\0train.py\0--token=hunter2\0--lr\x000.1\0",
    b"RANK=1\0WORLD_SIZE=8\0LOCAL_RANK=1\0MASTER_ADDR=10.0.0.1\0MASTER_PORT=29500\0NCCL_RAS_ADDR=localhost:28028\0",
]


def _look_at_process(data: bytes) -> None:
    """Read bytes as maps, as a command line and as variables: a process chooses all three."""
    text = data.decode(errors="replace")
    mapped_files(text)
    words = tuple(text.split("\0"))
    is_profd(words)
    mask_command(words)
    script_name(words)
    pairs = (word.partition("=") for word in words)
    placement_of({name: value for name, _, value in pairs})


class _Script(UserFiles):
    """The files of a target: each is the same script."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def kept(self, _path: str, _at_ns: int | None = None) -> bytes:
        return self._data

    def is_file(self, _path: str | Path) -> bool:
        return False


class _Stored:
    """A run file that takes whatever was read: what a reader lets through has to be of the kind
    that can be stored.
    """

    def __init__(self, folder: Path) -> None:
        self._tables = Tables(database.create(folder / "stored.profd"), synthetic.describe)
        self._tables.begin(synthetic.run_started())

    def take(self, record: Record) -> None:
        """Store a record."""
        self._tables.commit([record])


def _assemble(data: bytes) -> tuple[Record, ...]:
    """Make the records of a recording, as a session does."""
    last_timestamp_us(data)
    raw = RawRecording(data, 1_700_000_000 * SECOND_NS, 1000, 4000, 3, SECOND_NS)
    return assembly.assemble(raw, Identity(1, 1), 100, EVER)


def _window(data: bytes) -> Record:
    """Make a record of a trace, as a session does."""
    found = msgspec.structs.asdict(reduce(BytesIO(data), begins_with_step=True))
    return WindowTaken(
        Identity(1, 1), synthetic.STARTED_NS, "kineto", synthetic.STARTED_NS, **found
    )


def _run_file(folder: Path) -> bytes:
    """Return the bytes of a small run with a row in nearly every table."""
    path = folder / "seed.profd"
    operators = (OperatorTotals("aten::mm", "cpu", False, "[]", 1, 2, 3, 0, 0, 0, 0, 0, 0),)
    now_ns = time.time_ns()
    window = WindowTaken(synthetic.MAIN, now_ns, "kineto", now_ns - 9, start_ns=now_ns - 9, end_ns=now_ns,
                         operators=operators)  # fmt: skip
    # A live one, of this process: metrics are those of live runs alone.
    synthetic.write_run(
        path, seconds=3, workers=1, live=True, also=[OutputWritten(now_ns, b"step 1\n"), window]
    )
    return path.read_bytes()


def _readings(folder: Path, data: bytes, reads: Mapping[str, Reader]) -> Iterator[Reading]:
    """Yield each reader with the run file made for it, as none may see what another left beside it."""
    for number, reader in enumerate(reads.values()):
        path = folder / f"case{number}.profd"
        path.write_bytes(data)
        yield partial(reader, path)
        for left in folder.glob(f"{path.name}*"):
            left.unlink()


def _other_schema(folder: Path, run: bytes, chance: random.Random) -> bytes:
    """Return a run file with another schema."""
    path = folder / "schema.profd"
    path.write_bytes(run)
    change_schema(path, chance)
    return path.read_bytes()


def _changed_run(folder: Path, run: bytes, chance: random.Random) -> bytes:
    """Return a sound database with hostile values in some columns."""
    path = folder / "changed.profd"
    path.write_bytes(run)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA writable_schema = ON")
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        for _ in range(chance.randint(1, 3)):
            _spoil(connection, chance.choice(tables), chance)
        connection.commit()
    finally:
        connection.close()
    return path.read_bytes()


def _spoil(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    """Give one column of a table, in one row or in all, a value that nobody expects there.

    Or lose a row.
    """
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    where = chance.choice(("1", "random() % 3 = 0"))
    try:
        if chance.randrange(6) == 0:
            connection.execute(f"DELETE FROM {table} WHERE {where}")
        else:
            sql = f"UPDATE OR IGNORE {table} SET {chance.choice(columns)} = ? WHERE {where}"
            connection.execute(sql, (chance.choice(HOSTILE_VALUES),))
    except (sqlite3.Error, OverflowError):
        return


def _recording() -> bytes:
    label = "thread (123): MainThread"
    calls = [(label, "", 0), ("<module>", "/srv/train.py", 3), ("train", "/srv/train.py", 9)]
    events = []
    for round_ in range(20):
        for phase, rows in (("B", calls), ("E", calls[::-1])):
            for name, file, line in rows:
                at_us = round_ * 2000 + (1000 if phase == "E" else 0)
                arguments = {"filename": file, "line": line}
                events.append(
                    {
                        "ph": phase,
                        "tid": 7,
                        "pid": 1,
                        "ts": at_us,
                        "name": name,
                        "cat": "py-spy",
                        "args": arguments,
                    }
                )
    return msgspec.json.encode(events)


def _dump() -> bytes:
    local = {"name": "step", "addr": 1, "arg": False, "repr": "417"}
    frame = {"name": "train", "filename": "/srv/train.py", "short_filename": "train.py", "module": None, "line": 9,
             "locals": [local], "is_entry": True}  # fmt: skip
    thread = {"pid": 1, "thread_id": 7, "os_thread_id": 1, "thread_name": "MainThread", "active": True,
              "owns_gil": True, "frames": [frame, frame]}  # fmt: skip
    return msgspec.json.encode([thread, thread])


def _trace() -> bytes:
    script = (
        TraceScript()
        .op("aten::add", 1, 20, args={"External id": 1})
        .op("aten::mul", 3, 9)
        .memory(4, 512)
    )
    return msgspec.json.encode(
        {"traceEvents": script.events, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    )


def _datagrams() -> list[bytes]:
    context = kineto.encode("ctxt", (1).to_bytes(4, "little") * 4)
    return [
        context,
        kineto.encode("req", (2).to_bytes(4, "little") + (1).to_bytes(4, "little") * 5),
    ]


def _answer() -> bytes:
    """Return what NCCL's RAS says of two communicators, one of them with a rank behind."""
    job = job_of(16, per_host=8)
    job.launch("AllGather", but=[3])
    return answer_in_json([job, job_of(8)])


def _requests() -> list[bytes]:
    return [msgspec.json.encode(Request(command)) for command in ("hello", "watch", "window")]
