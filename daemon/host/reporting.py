"""Has the report of a run written, by `profd summary` and `profd report` in processes of low priority, one at a time.

What records never imports what judges: this side starts those commands, and reads the JSON that they promise.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from profd.daemon.errors import RunUnreadable, SessionFailed
from profd.daemon.host.sessions import run_file
from profd.daemon.host.shelf import Shelf
from profd.daemon.store.database import unwritable

_LOWEST_PRIORITY = 19
_TIMEOUT_S = 1800.0
_TOLD = 400


class _Summary(msgspec.Struct, frozen=True):
    incident: str


class Reporter(Protocol):
    """What the supervisor asks of whoever writes reports."""

    async def report(self, run_id: str) -> str:
        """Write the report of a run, and return its incident; raises ProfdError."""
        ...


class CommandReporter:
    """Writes ``<id>.json`` and ``<id>.html`` into the folder of reports."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def report(self, run_id: str) -> str:
        """Write the report of a run, and return its incident; raises ProfdError."""
        run, page = str(run_file(run_id)), str(self._shelf.report_file(run_id, ".html"))
        summary = self._shelf.report_file(run_id, ".json")
        beside = summary.with_suffix(".new")
        try:
            await _profd(beside, "summary", run, "--json")
            await _profd(Path(os.devnull), "report", run, "-o", page)
            incident = read_incident(beside)
            beside.replace(summary)
        except OSError as error:
            raise unwritable(summary, error) from error
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        return incident


def read_incident(summary: Path) -> str:
    """Return the incident that the summary of a run tells, else nothing; raises RunUnreadable where it is none."""
    try:
        return msgspec.json.decode(summary.read_bytes(), type=_Summary).incident
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunUnreadable(f"{summary} is no summary ({error})", "see `profd summary` of the run") from error


async def _profd(output: Path, *words: str) -> None:
    """Run a command of profd's to its end; raises SessionFailed with what it said where it fails."""
    with output.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "profd.daemon.capabilities", sys.executable, "-m", "profd", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST_PRIORITY)
    try:
        _, said = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except asyncio.TimeoutError:
        raise SessionFailed(f"`profd {words[0]}` took longer than {_TIMEOUT_S:.0f} s", "run it by hand") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SessionFailed(
            f"`profd {words[0]}` ended with {process.returncode} ({said.decode(errors='replace').strip()[-_TOLD:]})",
            "run it by hand",
        )
