"""Runs a real session on a process, and notes everything that comes into it: the lines of a stored recording.

``capture.py PID SECONDS RATE FILE``; SECONDS is ``inf`` for a process that is recorded to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.recordinglines import (
    Put,
    PySpyDump,
    PySpyRecord,
    Started,
    StepsBegan,
    StepsEnded,
    StoredLine,
    encode_line,
    write_lines,
)

from profd.daemon import paths, processes
from profd.daemon.clock import AnchoredClock
from profd.daemon.collect.stacks import assembly, pyspy
from profd.daemon.collect.stacks.assembly import Span, Threads
from profd.daemon.collect.stacks.pyspy import PySpyOutput, RawRecording
from profd.daemon.collect.stacks.tearing import Evidence
from profd.daemon.collect.steps import counter
from profd.daemon.collect.steps.counter import Answer, CounterReading
from profd.daemon.collect.steps.reader import COUNT_SERIES, FOUND_KIND, StepReader
from profd.daemon.store.records import (
    DescribeFrame,
    EventHappened,
    Identity,
    PointsTaken,
    Record,
    RecordingTaken,
    RunStarted,
)
from profd.daemon.store.writer import RunWriter
from profd.daemon.supervise.recorder import Recorder
from profd.daemon.supervise.session import SessionOptions

# The session is what is recorded here, not its budget: a rate that follows the cost would differ from run to run.
BUDGET_PERCENT = 100.0


def record(pid: int, seconds: float | None, rate_hz: int) -> list[StoredLine]:
    """Record a process with its children, and return what came into the session."""
    stat = processes.read_stat(pid)
    assert stat is not None
    run_id = paths.new_run_id("recording")
    options = SessionOptions(
        run_id=run_id,
        name="recording",
        run_file=paths.new_run_file(run_id),
        mode="attached",
        pid=pid,
        start_ticks=stat.start_ticks,
        command=processes.command_line(pid),
        rate_hz=rate_hz,
        budget_percent=BUDGET_PERCENT,
        duration_s=seconds,
        hang_after_s=None,
    )
    with noted() as lines:
        asyncio.run(Recorder(options, AnchoredClock()).run(lambda _: None))
    return lines


@contextlib.contextmanager
def noted() -> Iterator[list[StoredLine]]:
    """Note what comes into the sessions of this process."""
    notes = _Notes()
    read_output, assemble, ask = pyspy.read_output, assembly.assemble, counter.ask
    make_reader, take, end = StepReader.__init__, StepReader.take, StepReader.end
    make_writer, put = RunWriter.__init__, RunWriter.put

    def noting_output(output: PySpyOutput) -> RawRecording:
        raw = read_output(output)
        notes.outputs[id(raw)] = raw, output
        return raw

    def noting_assembly(
        raw: RawRecording, identity: Identity, rate_hz: int, keep: Span, threads: Threads, evidence: Evidence
    ) -> RecordingTaken:
        notes.take_recording(raw, identity, rate_hz, keep, threads, evidence)
        return assemble(raw, identity, rate_hz, keep, threads, evidence)

    def noting_ask(executable: str, pid: int, clock: AnchoredClock) -> Answer:
        answer = ask(executable, pid, clock)
        notes.answers[pid].append(answer)
        return answer

    def noting_reader(reader: StepReader, executable: str, identity: Identity, *rest: object) -> None:
        make_reader(reader, executable, identity, *rest)  # type: ignore[arg-type]
        notes.lines.append(StepsBegan(identity))

    def noting_take(reader: StepReader, reading: CounterReading) -> None:
        notes.take_answers(reader._identity)
        take(reader, reading)

    def noting_end(reader: StepReader) -> None:
        notes.take_answers(reader._identity)
        notes.lines.append(StepsEnded(reader._identity))
        end(reader)

    def noting_writer(writer: RunWriter, path: object, started: RunStarted, describe: DescribeFrame) -> None:
        notes.lines.append(Started(started))
        make_writer(writer, path, started, describe)  # type: ignore[arg-type]

    def noting_put(writer: RunWriter, record: Record) -> bool:
        notes.take_record(record)
        return put(writer, record)

    with contextlib.ExitStack() as patches:
        for owner, name, patch in (
            (pyspy, "read_output", noting_output),
            (assembly, "assemble", noting_assembly),
            (counter, "ask", noting_ask),
            (StepReader, "__init__", noting_reader),
            (StepReader, "take", noting_take),
            (StepReader, "end", noting_end),
            (RunWriter, "__init__", noting_writer),
            (RunWriter, "put", noting_put),
        ):
            patches.enter_context(mock.patch.object(owner, name, patch))
        yield notes.lines


class _Notes:
    """The lines, and what belongs to lines that are yet to come."""

    def __init__(self) -> None:
        self.lines: list[StoredLine] = []
        self.outputs: dict[int, tuple[RawRecording, PySpyOutput]] = {}
        self.answers: defaultdict[int, list[Answer]] = defaultdict(list)
        # Kept, so that none has the id of another one.
        self._chains: list[Evidence] = []
        self._lock = threading.Lock()

    def take_recording(
        self, raw: RawRecording, identity: Identity, rate_hz: int, keep: Span, threads: Threads, evidence: Evidence
    ) -> None:
        """Note what is put together now."""
        _, output = self.outputs.pop(id(raw))
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

    def take_answers(self, identity: Identity) -> None:
        """Note the answers that a reading comes from, and those that gave none before it."""
        for answer in self.answers.pop(identity.pid, []):
            line = PySpyDump(
                *identity,
                spawned_ns=answer.spawned_ns,
                spoke_ns=answer.spoke_ns,
                monotonic_s=answer.monotonic_s,
                cpu_ns=answer.cpu_ns,
                said=answer.said.decode(errors="replace"),
            )
            self.lines.append(line)

    def take_record(self, record: Record) -> None:
        """Note a record that comes from nothing else that is noted."""
        is_steps = isinstance(record, PointsTaken) and any(point.name == COUNT_SERIES for point in record.points)
        is_counter = isinstance(record, EventHappened) and record.kind == FOUND_KIND
        if not (is_steps or is_counter or isinstance(record, RecordingTaken)):
            self.lines.append(Put(record))


def main() -> None:
    """Record the process that is named, and store the lines."""
    pid, seconds, rate_hz, file = sys.argv[1:]
    lines = record(int(pid), None if math.isinf(float(seconds)) else float(seconds), int(rate_hz))
    write_lines(Path(file), map(encode_line, lines))


if __name__ == "__main__":
    main()
