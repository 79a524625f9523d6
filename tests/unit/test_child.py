"""Programs that an event loop starts: they end with the block that they are for, and import nothing
from a folder.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from profd.daemon.child import PIPE, child

WAITING = "import sys; print('begun', flush=True); sys.stdin.read()"
ENDING_IN_ITS_WAY = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n" + WAITING
)


@pytest.mark.parametrize(
    ("program", "end_by", "code"),
    [(WAITING, signal.SIGKILL, -signal.SIGKILL), (ENDING_IN_ITS_WAY, signal.SIGTERM, 3)],
)
async def test_one_that_runs_still_is_ended_with_its_block(
    program: str, end_by: signal.Signals, code: int
) -> None:
    async with child(
        (sys.executable, "-c", program), stdin=PIPE, stdout=PIPE, end_by=end_by
    ) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begun\n"
    assert process.returncode == code


async def test_one_that_has_ended_keeps_its_code_and_one_that_does_not_start_is_an_error() -> None:
    async with child((sys.executable, "-c", "raise SystemExit(4)")) as process:
        await process.wait()
    assert process.returncode == 4
    with pytest.raises(FileNotFoundError):
        async with child(("/no/such/program",)):
            pass


async def test_it_finds_no_module_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    async with child(
        (sys.executable, "-c", "import json, os; print(os.getcwd())"), stdout=PIPE
    ) as process:
        assert (await process.communicate())[0] == b"/\n"
    assert process.returncode == 0
