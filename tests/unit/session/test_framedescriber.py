"""What of a frame's source is in the run file, and what is said of files that have changed."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from pathlib import Path
from typing import cast

import pytest
from support.clocks import StoppedClock
from support.synthetic import identity_of

from profd.daemon.session.framedescriber import FrameDescriber
from profd.daemon.stacks.origin import Origin
from profd.daemon.stacks.source import SourceTree
from profd.daemon.store.records import (
    CHANGED_SOURCE,
    EventHappened,
    Frame,
    Record,
    RecordingTaken,
)
from profd.daemon.userfiles import UserFiles


def describer(own: Path, said: list[Record], *, with_source: bool = True) -> FrameDescriber:
    sources = lru_cache(8)(partial(SourceTree, UserFiles(), own, None))
    return FrameDescriber(sources, StoppedClock(), said.append, with_source=with_source)


@pytest.mark.parametrize(("with_source", "kept"), [(True, "login(token=***"), (False, None)])
def test_lines_of_source_are_kept_without_secrets_or_not_at_all(
    tmp_path: Path, with_source: bool, kept: str | None
) -> None:
    file = tmp_path / "train.py"
    file.write_text("login(token='hunter2')\n")
    described = describer(tmp_path, [], with_source=with_source)
    assert described.describe(Frame("f", str(file), 1)).source == kept
    assert described.describe(Frame("f", str(file), 2)).source is None


def test_a_file_that_has_changed_is_said_once_and_those_of_libraries_together(
    tmp_path: Path,
) -> None:
    said: list[Record] = []
    described = describer(tmp_path, said)
    library = tmp_path / "lib/python3.11/site-packages"
    library.mkdir(parents=True)
    files = [tmp_path / "train.py", tmp_path / "model.py", library / "a.py", library / "b.py"]
    for file in files:
        file.write_text("x = 1\n")
    stack = tuple(Frame("f", str(file), 1) for file in files[:3])
    recording = RecordingTaken(identity_of(), 0, 0, 100, 0, 0, 0, 0, 0, (stack,), ())
    described.take(recording, Origin(1))
    described.root_origin = Origin(time.time_ns())
    sources = [
        described.describe(Frame("f", str(file), line)).source for file in files for line in (1, 2)
    ]
    assert sources == [CHANGED_SOURCE] * 6 + ["x = 1", None]
    assert [cast(EventHappened, one).text.partition(" has changed")[0] for one in said] == list(
        map(str, files[:3])
    )
