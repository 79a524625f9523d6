"""Starts profd's own programs as children of an event loop.

They end with the work that they are for.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO

from profd.daemon.program import environment

PIPE, NOTHING = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
LONGEST_LINE = 1 << 16
"""The most bytes in a line of a child: reading a longer one raises ValueError."""


@contextlib.asynccontextmanager
async def child(
    words: Sequence[str],
    *,
    stdin: int = NOTHING,
    stdout: int | BinaryIO = NOTHING,
    stderr: int | None = None,
    longest_line: int = LONGEST_LINE,
    end_by: signal.Signals = signal.SIGKILL,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program, ended by ``end_by`` after the block.

    Raises OSError if it does not start.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        limit=longest_line,
        cwd="/",
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(end_by)
            await process.wait()
