"""Looks for findings when it is asked to: a process, since looking holds Python's lock for seconds in a run of a day.

    python -m profd.tui.reading.examiner FILE

Reads questions from stdin and writes answers to stdout. Ends with its stdin, in the midst of a look, too: so it is gone
when the dashboard is, however that ended. Knows nothing of the dashboard.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from profd.daemon.analyze.findings.catalog import find
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader
from profd.tui.reading.questions import Answer, Question

_NICENESS = 10


def look(path: Path, question: Question) -> Answer:
    """Return what slows a run, or why that cannot be said."""
    begun_s = time.process_time()
    try:
        with RunReader(path) as reader:
            found = find(reader, Selection(from_ns=question.from_ns, main_threads=True), PhaseIndex(reader))
    except ProfdError as error:
        return Answer(error=error.what, remedy=error.remedy)
    return Answer(found, time.process_time() - begun_s)


def questions(asked: BinaryIO) -> Iterator[Question]:
    """Yield questions as they come; the end of them ends this process, whatever it does just then."""
    queue: SimpleQueue[Question] = SimpleQueue()

    def listen() -> None:
        for line in asked:
            queue.put(msgspec.json.decode(line, type=Question))
        os._exit(0)

    threading.Thread(target=listen, name="profd-questions", daemon=True).start()
    while True:
        yield queue.get()


def main() -> None:
    """Answer about the run that the command line names."""
    os.nice(_NICENESS)
    for question in questions(sys.stdin.buffer):
        sys.stdout.buffer.write(msgspec.json.encode(look(Path(sys.argv[1]), question)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
