"""Has the metrics of all live runs served, by a process of their own that only reads: starts it, and again if it ends.

That process ends with this one, whatever ends this one: it holds the other end of its stdin. Nothing of it is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from profd.daemon.service.configuration import Configuration
from profd.daemon.service.log import JsonLog

_PROGRAM = "profd.daemon.metrics"
_FIRST_REST_S = 2.0
_LONGEST_REST_S = 60.0


def metrics_command(configuration: Configuration, runs: Path) -> tuple[str, ...]:
    """Return the words that start what is wanted of the runs in a folder; none where nothing is."""
    wanted = configuration
    if wanted.metrics is None and wanted.otlp is None:
        return ()
    words = [sys.executable, "-m", _PROGRAM, str(runs)]
    words += [wanted.metrics] if wanted.metrics is not None else []
    words += ["--otlp", wanted.otlp] if wanted.otlp is not None else []
    return (*words, "--while-stdin")


class Exporting:
    """The process that serves; what it says goes to the journal."""

    def __init__(self, journal: JsonLog) -> None:
        self._journal = journal
        self._command: tuple[str, ...] = ()
        self._keeping: asyncio.Task[None] | None = None

    def use(self, command: Sequence[str]) -> None:
        """Keep a process with these words running from now on; none where there are no words."""
        if tuple(command) != self._command:
            self._command = tuple(command)
            before, self._keeping = self._keeping, None
            self._keeping = asyncio.ensure_future(self._keep(self._command, before))

    async def close(self) -> None:
        """End the process."""
        await _end(self._keeping)

    async def _keep(self, command: tuple[str, ...], before: asyncio.Task[None] | None) -> None:
        await _end(before)  # it may hold the same port
        rest_s = _FIRST_REST_S
        while command:
            code = await self._serve(command)
            self._journal.say(
                "unserved", f"the metrics broke off with {code}; again in {rest_s:.0f} s", level="warning"
            )
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _LONGEST_REST_S)

    async def _serve(self, command: tuple[str, ...]) -> int:
        """Run the process to its end, and return its exit code."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=asyncio.subprocess.DEVNULL, stderr=pipe, cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip
        assert process.stderr is not None
        try:
            async for line in process.stderr:
                self._journal.say("metrics", line.decode(errors="replace").strip())
            return await process.wait()  # it has let go of stderr, and ends in its own way
        except ValueError:  # a line without end
            process.kill()
            return await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
