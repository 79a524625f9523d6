"""Runs a real session on a process, and notes everything that comes into it: the lines of a stored recording.

``capture.py PID SECONDS RATE FILE [HANG_AFTER_S]``; SECONDS is ``inf`` for a process that is recorded to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.recordinglines import (
    Looked,
    Put,
    PySpyRecord,
    Started,
    StoredLine,
    encode_line,
    write_lines,
)
from support.sessions import session_options

from profd.daemon.clock import Clock
from profd.daemon.hangs.look import Look
from profd.daemon.hangs.watch import HangWatch
from profd.daemon.session.recorder import Recorder
from profd.daemon.stacks import assembly, recording
from profd.daemon.stacks.assembly import Threads
from profd.daemon.stacks.evidence import StackEvidence
from profd.daemon.stacks.pyspy import PySpyOutput, RawRecording, read_output
from profd.daemon.store.records import DescribeFrame, Identity, Record, RecordingTaken, RunStarted
from profd.daemon.store.writer import RunWriter
from profd.daemon.timerange import TimeRange
from profd.daemon.tree.tree import Member


def record(
    pid: int, seconds: float | None, rate_hz: int, hang_after_s: float | None
) -> list[StoredLine]:
    """Record a process with its children, and return what came into the session."""
    options = session_options(
        "recording", pid, rate_hz=rate_hz, duration_s=seconds, hang_after_s=hang_after_s
    )
    with noted() as lines:
        asyncio.run(Recorder(options, Clock()).run(lambda _: None))
    return lines


@contextlib.contextmanager
def noted() -> Iterator[list[StoredLine]]:
    """Note what comes into the sessions of this process."""
    notes = _Notes()
    assemble = assembly.assemble
    make_writer, put, begin_watch = RunWriter.__init__, RunWriter.put, HangWatch.__post_init__

    def noting_output(output: PySpyOutput) -> RawRecording:
        raw = read_output(output)
        notes.outputs[id(raw.data)] = (
            raw,
            output,
        )  # the chain adds to what is known of it, not to its bytes
        return raw

    def noting_assembly(
        raw: RawRecording,
        identity: Identity,
        rate_hz: int,
        keep: TimeRange,
        threads: Threads,
        evidence: StackEvidence,
    ) -> tuple[RecordingTaken, ...]:
        notes.take_recording(raw, identity, rate_hz, keep, threads, evidence)
        return assemble(raw, identity, rate_hz, keep, threads, evidence)

    def noting_writer(
        writer: RunWriter,
        path: Path,
        started: RunStarted,
        describe: DescribeFrame,
        most_bytes: int | None = None,
    ) -> None:
        notes.lines.append(Started(started))
        make_writer(writer, path, started, describe, most_bytes)

    def noting_put(writer: RunWriter, record: Record) -> bool:
        notes.take_record(record)
        return put(writer, record)

    def noting_looks(watch: HangWatch) -> None:
        begin_watch(watch)
        look = watch.look

        def noted_look(members: Sequence[Member], at_ns: int, *, mains_only: bool) -> Look:
            seen = look(members, at_ns, mains_only=mains_only)
            notes.lines.append(Looked.of(seen, mains_only=mains_only))
            return seen

        watch.look = noted_look

    with contextlib.ExitStack() as patches:
        for owner, name, patch in (
            (recording, "read_output", noting_output),
            (assembly, "assemble", noting_assembly),
            (RunWriter, "__init__", noting_writer),
            (RunWriter, "put", noting_put),
            (HangWatch, "__post_init__", noting_looks),
        ):
            patches.enter_context(mock.patch.object(owner, name, patch))
        yield notes.lines


class _Notes:
    """The lines, and what belongs to lines that are yet to come."""

    def __init__(self) -> None:
        self.lines: list[StoredLine] = []
        self.outputs: dict[int, tuple[RawRecording, PySpyOutput]] = {}
        # Kept, so that none has the id of another one.
        self._chains: list[StackEvidence] = []
        self._lock = threading.Lock()

    def take_recording(
        self,
        raw: RawRecording,
        identity: Identity,
        rate_hz: int,
        keep: TimeRange,
        threads: Threads,
        evidence: StackEvidence,
    ) -> None:
        """Note what is put together now."""
        _, output = self.outputs.pop(id(raw.data))
        if not any(evidence is known for known in self._chains):
            self._chains.append(evidence)
        chain = next(number for number, known in enumerate(self._chains) if known is evidence)
        line = PySpyRecord(
            *identity,
            chain=chain,
            rate_hz=rate_hz,
            spawned_ns=output.spawned_ns,
            sampling_ns=output.sampling_ns,
            ended_ns=output.ended_ns,
            cpu_ns=output.cpu_ns,
            wall_jump_ns=output.wall_jump_ns,
            said=output.said.decode(errors="replace"),
            trace=output.trace.decode(errors="replace"),
            keep=(keep.from_ns, keep.to_ns),
            threads=threads,
        )
        self.lines.append(line)

    def take_record(self, record: Record) -> None:
        """Note a record that comes from nothing else that is noted."""
        if not isinstance(record, RecordingTaken):
            self.lines.append(Put(record))


def main() -> None:
    """Record the process that is named, and store the lines."""
    pid, seconds, rate_hz, file, *watched = sys.argv[1:]
    duration_s = None if math.isinf(float(seconds)) else float(seconds)
    lines = record(int(pid), duration_s, int(rate_hz), float(watched[0]) if watched else None)
    write_lines(Path(file), map(encode_line, lines))


if __name__ == "__main__":
    main()
