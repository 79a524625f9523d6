from __future__ import annotations

from pathlib import Path

from support import synthetic
from support.synthetic import DATA_WAIT, DEFORM, LIBRARY, MAIN, PIN_MEMORY, STARTED_NS

from profd.daemon.analyze.phases import own_frame
from profd.daemon.store import records
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.writer import RunWriter

CHILD = (*DEFORM[:10], Frame("poll", LIBRARY + "torch/utils/data/_utils/worker.py", 1))


def stacks(path: Path, *seen: tuple[Frame, ...]) -> tuple[RunReader, list[int]]:
    """Write a run in which each of these stacks was seen for a tenth of a second; return it with the stacks' ids."""
    writer = RunWriter(path, synthetic.run_started(), synthetic.describe)
    writer.put(records.ProcessSeen(MAIN, None, ("python",), "main", None, None, "3.11", STARTED_NS))
    writer.put(synthetic.recording(MAIN, STARTED_NS, ((1, "MainThread", True, [(stack, 100) for stack in seen]),)))
    writer.close()
    reader = RunReader(path)
    return reader, [interval.stack for interval in reader.intervals()]


def test_the_users_line_of_a_forked_child_is_its_own_and_not_its_parents(tmp_path: Path) -> None:
    reader, (wait, pin, deform, child) = stacks(tmp_path / "a.profd", DATA_WAIT, PIN_MEMORY, DEFORM, CHILD)
    main, worker = own_frame(reader.frames_of(wait)), own_frame(reader.frames_of(deform))

    assert main is not None
    assert main.line == 58
    assert own_frame(reader.frames_of(pin)) is None
    assert worker is not None
    assert worker.function == "elastic_deform"
    assert reader.frames_of(child)[-1].function == "poll"
    assert own_frame(reader.frames_of(child)) is None
