"""Puts the stand-in in the place of py-spy, and says what it plays and how it fails."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from profd.daemon import processes
from profd.daemon.store.records import Stack
from support.folders import TESTS
from support.traces import ThreadTrace, stack, write_trace
from support.waiting import until

_LENGTH_US = 1_000_000
_SCRIPT = """\
#!{python} -IS
import sys
sys.path.insert(0, {tests!r})
from support.pyspy.program import main
sys.exit(main({folder!r}))
"""


class Fault(NamedTuple):
    """What goes wrong at the starts ``first`` to ``last`` (None: at all that follow) of a command.

    ``at`` is the moment: before py-spy speaks (``start``), once it has said that it samples (``sampling``), or when it
    is to write (``end``). ``do`` is nothing, ``exit`` with ``code``, ``signal`` (dies of it), ``hang``, or ``silence``
    (hangs with its output closed); ``says`` is written to stderr before that. ``trace`` is what becomes of the file:
    ``none``, ``cut``, ``garbage``, or ``enormous`` with ``size`` bytes. One that is ``deaf`` ignores SIGINT.
    """

    at: str = "start"
    do: str = ""
    says: str = ""
    code: int = 1
    signal: int = signal.SIGKILL
    trace: str = ""
    size: int = 0
    deaf: bool = False
    first: int = 1
    last: int | None = None
    command: str = "record"


class Event(msgspec.Struct, frozen=True):
    """A line of the stand-in's journal: what its n-th start of a command did, and what it was started with."""

    event: str
    command: str
    number: int
    pid: int
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    blocked: tuple[int, ...] = ()
    says: str = ""
    target: int = 0


class StandIn:
    """A py-spy in a folder of its own; what it is to do can be changed at any time, for all starts from then on.

    It plays one thread in one function, ``train``, until it is given something else.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # another user may be the one to start it
        self.path = folder / "py-spy"
        self._journal = folder / "journal.jsonl"
        self._scenario: dict[str, Any] = {
            "version": "0.4.3",
            "trace": "",
            "dump": "",
            "faults": [],
            "strict": False,
            "fail_every": 0,
        }
        self.path.write_text(
            _SCRIPT.format(python=sys.executable, tests=os.fspath(TESTS), folder=os.fspath(folder))
        )
        self.path.chmod(0o755)
        self._journal.touch()
        self._journal.chmod(0o666)
        self.stands_in(stack("train"))

    def stands_in(self, frames: Stack) -> None:
        """Play one thread in one stack, for a dump too."""
        shown = [
            {"name": one.function, "filename": one.file, "line": one.line}
            for one in reversed(frames)
        ]
        about = {"pid": 1, "thread_id": 1, "os_thread_id": 1, "thread_name": "MainThread"}
        dump = msgspec.json.encode([{**about, "active": True, "owns_gil": False, "frames": shown}])
        self.plays(write_trace(ThreadTrace([(0, frames)], _LENGTH_US)), dump=dump)

    def plays(self, trace: bytes = b"", *, dump: bytes = b"") -> None:
        """Play this trace; ``dump`` is what a dump shows, as before where there is none."""
        self._set(trace=trace.decode(), dump=dump.decode() or self._scenario["dump"])

    def fails(self, *faults: Fault) -> None:
        """Fail so from now on, instead of as before; without a fault, not at all."""
        self._set(faults=[fault._asdict() for fault in faults])

    def fails_to_read(self, every: int) -> None:
        """Fail to read every n-th sample, and log that."""
        self._set(fail_every=every)

    def insists_on_python(self) -> None:
        """Refuse a process that is no Python, or that may not be read, as py-spy does."""
        self._set(strict=True)

    def events(self, event: str = "", *, command: str = "record", target: int = 0) -> list[Event]:
        """Return what its starts did so far, in order of time; of one kind, or of one process, where that is named."""
        lines = self._journal.read_bytes().splitlines(keepends=True)
        all_events = [
            msgspec.json.decode(line, type=Event) for line in lines if line.endswith(b"\n")
        ]
        return [
            one
            for one in all_events
            if one.command == command and event in ("", one.event) and target in (0, one.target)
        ]

    def wait(self, event: str, count: int = 1, *, command: str = "record") -> Event:
        """Wait until so many starts have done this, and return the last one of them."""

        def found() -> Event | None:
            events = self.events(event, command=command)
            return events[count - 1] if len(events) >= count else None

        return until(found, f"{event} {count} of {command}")

    def end(self) -> None:
        """Kill what still runs: those that hang, and those whose session was killed."""
        for command in ("record", "dump"):
            for begun in self.events("start", command=command):
                if os.fspath(self.path) in processes.command_line(begun.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(begun.pid, signal.SIGKILL)

    def _set(self, **changes: object) -> None:
        """Change the scenario, all at once: a start in between reads the one before."""
        self._scenario |= changes
        new = self.path.with_name("scenario.new")
        new.write_text(json.dumps(self._scenario))
        new.replace(self.path.with_name("scenario.json"))
