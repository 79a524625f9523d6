"""Serves the metrics of all live runs by a process of their own, and starts that again if it ends.

That process ends with this one, whatever ends this one: it reads the other end of its stdin.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from profd.daemon import program
from profd.daemon.child import PIPE, child
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.log import JsonLog

_FIRST_REST_S = 2.0


def metrics_command(configuration: Configuration, runs: Path) -> tuple[str, ...]:
    """Return the command that serves or sends the metrics of the runs in a folder.

    Empty if neither is wanted.
    """
    if configuration.metrics is None and configuration.otlp is None:
        return ()
    address = () if configuration.metrics is None else (configuration.metrics,)
    endpoint = () if configuration.otlp is None else ("--otlp", configuration.otlp)
    return tuple(
        program.words("profd.daemon.metrics", str(runs), *address, *endpoint, "--while-stdin")
    )


class Exporting:
    """The process that serves; its stderr goes to the log."""

    def __init__(self, log: JsonLog) -> None:
        self._log = log
        self._command: tuple[str, ...] = ()
        self._keeping: asyncio.Task[None] | None = None

    def use(self, command: tuple[str, ...]) -> None:
        """Keep a process with this command running from now on; none if it is empty."""
        if command != self._command:
            self._command = command
            self._keeping = asyncio.ensure_future(self._keep(command, self._keeping))

    async def close(self) -> None:
        await _end(self._keeping)

    async def _keep(self, command: tuple[str, ...], before: asyncio.Task[None] | None) -> None:
        await _end(before)  # it may hold the same port
        rest_s = _FIRST_REST_S
        while command:
            async with child(command, stdin=PIPE, stderr=PIPE, end_by=signal.SIGTERM) as process:
                assert process.stderr is not None
                try:
                    async for line in process.stderr:
                        self._log.say("metrics", line.decode(errors="replace").strip())
                except ValueError:  # a line without end
                    process.kill()
                await process.wait()  # it has closed stderr, and ends in its own way
            text = f"the metrics broke off with {process.returncode}; again in {rest_s:.0f} s"
            self._log.say("unserved", text, level="warning")
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, 60.0)


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])
