"""Until when a loop ran after its counter was last read, by the lines of its function that were seen on the stack.

A target that ends cannot be read once more. But its stacks go on to its end: the loop was left when the last of its
lines was.
"""

from __future__ import annotations

import re

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import FrameRow

# How the recording side names a counter; see the events of kind `counter` in docs/file-format.md.
_NAMED = re.compile(r"loop counter `.+` in (?P<function>.+) \((?P<file>.+):\d+\)")
_LOOK_BACK_NS = 30 * SECOND_NS


def loop_left_ns(reader: RunReader, process: int, source: str | None, counted_ns: int, end_ns: int) -> int:
    """Return when the loop named ``source`` was left, ``counted_ns`` at the earliest and ``end_ns`` at the latest."""
    named = _NAMED.fullmatch(source or "")
    thread = next((row for row in reader.threads.values() if row.process == process and row.is_main), None)
    if named is None or thread is None:
        return end_ns
    rows = list(reader.intervals(counted_ns - _LOOK_BACK_NS, end_ns, [thread.id]))
    lines_of = {row.stack: _lines_of(reader, row.stack, named["function"], named["file"]) for row in rows}
    looping = {line for row in rows if row.start_ns <= counted_ns for line in lines_of[row.stack]}
    if not looping:
        return end_ns
    inside = [row.start_ns + row.duration_ns for row in rows if looping & lines_of[row.stack]]
    return min(max(inside[-1], counted_ns), end_ns)


def _lines_of(reader: RunReader, stack: int, function: str, file: str) -> set[int]:
    """Return the lines of a function on a stack."""
    return {frame.line for frame in reader.frames_of(stack) if _is_of(frame, function, file)}


def _is_of(frame: FrameRow, function: str, file: str) -> bool:
    return frame.function == function and frame.file.endswith(file)
