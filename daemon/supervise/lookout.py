"""What is found in a run while it is recorded: asked of a process, since a session knows nothing of findings."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from profd.daemon import sighting
from profd.daemon.sighting import Sighting

_PROGRAM = "profd.daemon.analyze.findings.lookout"


def command(run_file: Path) -> list[str]:
    """Return the words that start the process which looks at a run."""
    return [sys.executable, "-m", _PROGRAM, str(run_file)]


async def sightings(words: Sequence[str]) -> AsyncIterator[tuple[Sighting, ...]]:
    """Start the process and yield what each of its looks finds, until it ends or says what is no sighting."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            yield sighting.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):  # ValueError: a line without end
        return
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
