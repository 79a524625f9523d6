"""Answers about the whole of a long run, which its file keeps: to read it all anew takes seconds.

    python -m profd.daemon.api.wholerun FILE

That is the process that looks for findings while a run is recorded. At the end of a long run it
takes the answers, too, by the functions that answer a reader of a file without them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from profd.daemon.clock import MINUTE_NS
from profd.daemon.findings import analyst
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken
from profd.daemon.store.rollups import HOUR_MINUTES


def look_at_end(path: Path) -> Iterator[FindingsTaken]:
    """Yield the findings of a run that has ended, then the answers about it; raises ProfdError."""
    found = analyst.look_at_all(path)
    yield found
    with RunReader(path) as reader, reader.one_moment():
        # A shorter run is read as quickly.
        if reader.info.time.length_ns >= 2 * HOUR_MINUTES * MINUTE_NS:
            answers = take_answers(reader)
            # At most a hundredth of the file.
            if 100 * sum(map(len, answers.values())) <= path.stat().st_size:
                yield msgspec.structs.replace(found, findings=(), answers=answers)


def take_answers(reader: RunReader) -> dict[str, bytes]:
    from profd.daemon.api.run import take_lines
    from profd.daemon.compare.diff import take_compared
    from profd.daemon.render.summary import summarize

    return {
        take.__name__: msgspec.msgpack.encode(take(reader))
        for take in (summarize, take_lines, take_compared)
    }


if __name__ == "__main__":
    sys.exit(analyst.main(look_at_end))
