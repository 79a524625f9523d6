"""What is remembered of a run while it is open: it goes with its reader."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from support import synthetic

from profd.daemon.analyze.coverage import take_lives
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader


def test_a_run_is_let_go_of_once_its_reader_is(tmp_path: Path) -> None:
    """A daemon sums up run after run in one process."""
    path = tmp_path / "a.profd"
    synthetic.write_run(path, seconds=3)
    with RunReader(path) as reader:
        summarize(reader)
        assert take_lives(reader) is take_lives(reader)
        held = weakref.ref(reader)
    del reader
    gc.collect()
    assert held() is None
