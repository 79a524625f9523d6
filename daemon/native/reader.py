"""Reads native stacks in a process of its own: ``python -m profd.daemon.native.reader PID...``.

Files of the target may lie in a file system that is gone, and may claim anything. So the process
has a timeout and a limit on its memory. It prints one line of JSON for each PID, and opens each
library once.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Sequence

import msgspec

from profd.daemon import program
from profd.daemon.boundedprograms import ProgramLate, answer_of
from profd.daemon.native.images import Images
from profd.daemon.native.stacks import NativeProcess, read_process

_TIMEOUT_S = 10.0
_MOST_BYTES = 512 << 20
"""Of address space, most of which Python and its libraries map without using it."""


def native_stacks(pids: Sequence[int]) -> dict[int, NativeProcess]:
    """Return the native stacks of processes by their PIDs.

    This blocks for at most ten seconds. A process that was not read has ``error``.
    """
    words = program.words("profd.daemon.native.reader", *map(str, pids))
    why, purpose = "native stacks were not read: profd's reader ", ("native", *pids)
    try:
        code, answer, said = answer_of(words, program.environment(), _TIMEOUT_S, purpose)
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        why += f"ended with {code} ({last})"
    except OSError as error:
        answer, why = b"", f"{why}cannot be started ({error.strerror})"
    except ProgramLate as error:
        answer, why = error.said, f"{why}{error}"
    found = {pid: NativeProcess(pid, error=why) for pid in pids}
    for line in answer.splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last may be cut off
            one = msgspec.json.decode(line, type=NativeProcess)
            found[one.pid] = one
    return found


def main(pids: Iterable[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    images = Images()
    for pid in map(int, pids):
        try:
            found = read_process(pid, images)
        except MemoryError:
            found = NativeProcess(pid, error="reading its native stacks takes too much memory")
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
