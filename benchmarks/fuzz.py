"""Gives everything that reads what others wrote hostile bytes: nothing but a clear error may come of it, and soon.

    python benchmarks/fuzz.py [--cases N] [--seed N] [SUBJECT ...]

Subjects are run files (their bytes, and the values in their tables), recordings of py-spy, dumps of py-spy, Kineto's
traces and datagrams, and control messages. Prints for each how many cases there were, how they ended, the slowest, and
the memory of the process; ends with 1 where any case broke out of the errors that are meant for it, or took longer than
five seconds, or memory passed 500 MB.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import synthetic
from kinetotraces import TraceScript

from profd.daemon.analyze.summary import summarize
from profd.daemon.collect.stacks import chrometrace
from profd.daemon.collect.stacks.dump import decode_dump
from profd.daemon.collect.steps.counter import integers_of, main_stack
from profd.daemon.errors import ProfdError
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.supervise.control import Request
from profd.daemon.windows import kineto, trace
from profd.daemon.windows.operators import sum_up
from profd.daemon.windows.spans import read_spans

SLOWEST_S = 5.0
MOST_BYTES = 500 << 20
_HOSTILE_VALUES = (
    None,
    -1,
    0,
    1 << 62,
    -(1 << 62),
    1e308,
    float("inf"),
    "",
    "x" * 1000,
    "\x00\ud7ff",
    b"\xff\xfe",
    "[]",
    "{}",
)
_TOKENS = (b"null", b"-1", b"1e999", b"9" * 30, b'"', b"[", b"{", b"]" * 50, b"[" * 2000, b"\xff", b"\0", b"\\ud800")


class Subject(NamedTuple):
    """Something that reads: ``seeds`` are what it is meant to read, ``read`` does so, ``errors`` are meant for it."""

    seeds: list[bytes]
    read: Callable[[bytes, random.Random], object]
    errors: tuple[type[Exception], ...]


class Finding(NamedTuple):
    """A case that broke out; ``words`` is its traceback, or how long it took."""

    subject: str
    case: int
    words: str


class Outcome(NamedTuple):
    """How the cases of one subject ended: names of errors, ``read`` where it was read; the slowest in seconds."""

    endings: Counter[str]
    slowest_s: float
    findings: list[Finding]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return bytes changed at one to eight places: flipped, cut, doubled, moved, or replaced by hostile ones."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(changed) + 1)
        length = chance.choice((1, 2, 4, 8, 64, 512))
        kind = chance.randrange(5)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place : place + length] = chance.randbytes(length)
        elif kind == 2:
            changed[place : place + chance.choice((0, length))] = chance.choice(_TOKENS)
        elif kind == 3:
            del changed[place : place + length]
        else:
            changed[place:place] = changed[place : place + length]
    return bytes(changed) if chance.randrange(20) else bytes(changed[: chance.randrange(len(changed) + 1)])


def fuzz(name: str, subject: Subject, cases: int, seed: int) -> Outcome:
    """Give a subject so many mutated cases, one after the other in the main thread."""
    signal.signal(signal.SIGALRM, _break_off)
    endings: Counter[str] = Counter()
    slowest_s, findings = 0.0, []
    for case in range(cases):
        chance = random.Random(f"{name} {seed} {case}")
        data = mutate(chance.choice(subject.seeds), chance)
        begun_s = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 2 * SLOWEST_S)
        try:
            subject.read(data, chance)
            endings["read"] += 1
        except subject.errors as error:
            endings[type(error).__name__] += 1
        except Exception:  # noqa: BLE001  whatever breaks out is what is looked for
            endings["BROKE OUT"] += 1
            findings.append(Finding(name, case, traceback.format_exc()))
        signal.setitimer(signal.ITIMER_REAL, 0)
        took_s = time.perf_counter() - begun_s
        slowest_s = max(slowest_s, took_s)
        if took_s > SLOWEST_S:
            findings.append(Finding(name, case, f"took {took_s:.1f} s"))
    return Outcome(endings, slowest_s, findings)


def _break_off(number: int, frame: FrameType | None) -> None:
    """Break off a case that takes too long."""
    raise TimeoutError("it did not come to an end")


def subjects(folder: Path) -> dict[str, Subject]:
    """Return everything that reads; ``folder`` is for run files."""
    run = _run_file(folder)
    return {
        "run-bytes": Subject([run], lambda data, chance: _read_run(folder, data), (ProfdError,)),
        "run-values": Subject([b"-"], lambda data, chance: _read_run(folder, _changed_run(folder, run, chance)),
                              (ProfdError,)),
        "recordings": Subject([_recording()], lambda data, chance: chrometrace.decode(data),
                              (chrometrace.TraceDamaged,)),
        "dumps": Subject([_dump()], lambda data, chance: decode_dump(data), (ValueError,)),
        "counters": Subject([_dump()], lambda data, chance: integers_of(main_stack(data, 1)), ()),
        "traces": Subject([_trace()], lambda data, chance: sum_up(read_spans(trace.decode(data))), (ProfdError,)),
        "datagrams": Subject(_datagrams(), lambda data, chance: kineto.decode(data), ()),
        "control": Subject(_requests(), lambda data, chance: msgspec.json.decode(data, type=Request),
                           (msgspec.DecodeError, UnicodeDecodeError, RecursionError)),
    }  # fmt: skip


def _run_file(folder: Path) -> bytes:
    """Return the bytes of a small run with a row in nearly every table."""
    path = folder / "seed.profd"
    synthetic.write_run(path, seconds=3, workers=1)
    return path.read_bytes()


def _read_run(folder: Path, data: bytes) -> None:
    """Read a run file as ``profd summary`` does."""
    path = folder / "case.profd"
    path.write_bytes(data)
    with RunReader(path) as reader:
        summary = summarize(reader)
        summary_text(summary)
        msgspec.json.encode(summary)


def _changed_run(folder: Path, run: bytes, chance: random.Random) -> bytes:
    """Return a sound database with hostile values in some columns."""
    path = folder / "changed.profd"
    path.write_bytes(run)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA writable_schema = ON")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for _ in range(chance.randint(1, 3)):
            _spoil(connection, chance.choice(tables), chance)
        connection.commit()
    finally:
        connection.close()
    return path.read_bytes()


def _spoil(connection: sqlite3.Connection, table: str, chance: random.Random) -> None:
    """Give one column of a table, in one row or in all, a value that nobody expects there; or lose a row."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    where = chance.choice(("1", "random() % 3 = 0"))
    try:
        if chance.randrange(6) == 0:
            connection.execute(f"DELETE FROM {table} WHERE {where}")
        else:
            sql = f"UPDATE OR IGNORE {table} SET {chance.choice(columns)} = ? WHERE {where}"
            connection.execute(sql, (chance.choice(_HOSTILE_VALUES),))
    except sqlite3.Error:
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
                    {"ph": phase, "tid": 7, "pid": 1, "ts": at_us, "name": name, "cat": "py-spy", "args": arguments}
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
    script = TraceScript().op("aten::add", 1, 20, linked=1).op("aten::mul", 3, 9, linked=2).memory(4, 512)
    return msgspec.json.encode({"traceEvents": script.events, "baseTimeNanoseconds": 1_700_000_000_000_000_000})


def _datagrams() -> list[bytes]:
    context = kineto.encode("ctxt", (1).to_bytes(4, "little") * 4)
    return [context, kineto.encode("req", (2).to_bytes(4, "little") + (1).to_bytes(4, "little") * 5)]


def _requests() -> list[bytes]:
    return [msgspec.json.encode(Request(command)) for command in ("hello", "watch", "stop", "window")]


def report(name: str, outcome: Outcome) -> Iterator[str]:
    """Yield what is said of a subject."""
    endings = ", ".join(f"{count:,} {ending}" for ending, count in outcome.endings.most_common())
    yield f"{name:12} {sum(outcome.endings.values()):>8,} cases: {endings}; slowest {outcome.slowest_s:.2f} s"
    seen: set[str] = set()
    for finding in outcome.findings:
        last = finding.words.strip().splitlines()[-1]
        if last[:60] not in seen:
            seen.add(last[:60])
            yield f"  case {finding.case}: {finding.words}"


def main() -> int:
    """Fuzz the subjects named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="SUBJECT")
    parser.add_argument("--cases", type=int, default=10_000, help="cases of each subject [10000]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    is_sound = True
    with tempfile.TemporaryDirectory() as folder:
        known = subjects(Path(folder))
        for name in options.names or known:
            outcome = fuzz(name, known[name], options.cases, options.seed)
            print("\n".join(report(name, outcome)), flush=True)
            is_sound = is_sound and not outcome.findings
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(f"memory: at most {peak_bytes / 1e6:.0f} MB")
    return 0 if is_sound and peak_bytes <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
