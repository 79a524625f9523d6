"""What the header says of a run that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import synthetic

from profd.daemon.store.reader import RunReader
from profd.tui.widgets.header import ending


@pytest.mark.parametrize(
    ("code", "number", "said"), [(0, None, "ended with 0"), (3, None, "ended with 3"), (None, 9, "ended by SIGKILL")]
)
def test_how_the_target_ended_is_said(tmp_path: Path, code: int | None, number: int | None, said: str) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a", seconds=1, exit_code=code, exit_signal=number)) as reader:
        assert ending(reader.info) == said
