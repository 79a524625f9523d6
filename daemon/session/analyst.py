"""Run the process that looks for findings while a run is recorded.

The recording goes on whatever happens to that process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profd.daemon import program
from profd.daemon.child import PIPE, child
from profd.daemon.clock import SECOND_NS, Clock
from profd.daemon.events import EventKind
from profd.daemon.store.records import AnalysisLost, EventHappened, FindingsTaken, Put

RESTS_S = (5.0, 60.0, 60.0)
"""The pauses before each start of the process.

If a run ends sooner, its readers look for findings.
"""
UNWATCHED_S = 7.0
"""The process starts this much later if nobody reads what it finds.

Its imports take half a second of CPU time, on top of the start of the run.
"""
_START_CPU_S, _MOST_WAITS = 0.6, 10
"""If the budget has no room for the start, it is delayed, by about a minute at most."""
WHOLE_WITHIN_S = 5.0
"""How long the end of a run waits for what is found in the whole run; else readers look for it."""
_NS_A_SECOND = 5000 * SECOND_NS
"""For each of this length of a longer run it waits a second."""


def command(run_file: Path) -> list[str]:
    """Return the command of the process that looks for findings in a run."""
    return program.words("profd.daemon.api.wholerun", str(run_file))


@dataclass(eq=False)
class AnalystProcess:
    """Reads the findings of one session's process, and passes them to ``put``."""

    words: Sequence[str]
    clock: Clock
    put: Put
    rests_s: Sequence[float]
    """The pauses before the first start of the process, and before each restart after it died."""
    is_read: Callable[[], bool] = lambda: True
    """Whether somebody reads the findings: then the process starts and looks as soon as it may."""
    grant: Callable[[float], bool] = lambda _: True
    """Returns whether this many CPU seconds may be taken now."""

    def __post_init__(self) -> None:
        self._begun_ns = self.clock.now_ns()
        self._process: asyncio.subprocess.Process | None = None
        self._is_closing = False
        self._watching = asyncio.ensure_future(self._watch())

    def ask(self) -> None:
        """Let the process look as soon as possible, as somebody reads what it finds."""
        if self._process is not None and self._process.stdin is not None and not self._is_closing:
            self._process.stdin.write(b"r")

    async def close(self, within_s: float) -> None:
        """Take the findings of the whole run, which has ended, if they come soon.

        End the process.
        """
        self._is_closing = True
        if self._process is not None and self._process.stdin is not None and within_s:
            self._process.stdin.write(b"\n")
            most_s = max(within_s, (self.clock.now_ns() - self._begun_ns) / _NS_A_SECOND)
            await asyncio.wait({self._watching}, timeout=most_s)
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        """Run one process after the other until the whole run was looked at.

        Note once that a process has died.
        """
        is_noted = False
        for rest_s in self.rests_s:
            await asyncio.sleep(rest_s)
            for waits in range(_MOST_WAITS):
                if self.is_read() or (waits and self.grant(_START_CPU_S)):
                    break
                await asyncio.sleep(UNWATCHED_S)
            if await self._listen() or self._is_closing:
                return
            self.put(AnalysisLost(self.clock.now_ns()))
            if not is_noted:
                text = "nothing looks for findings at the moment: the process that does has ended"
                self.put(EventHappened(self.clock.now_ns(), EventKind.ERROR, text))
            is_noted = True

    async def _listen(self) -> bool:
        """Start the process and take what it finds.

        Returns False if it ends before it has looked at the whole run.
        """
        is_whole = False
        try:
            async with child(self.words, stdin=PIPE, stdout=PIPE, longest_line=4 << 20) as process:
                assert process.stdout is not None
                self._process = process
                async for line in process.stdout:
                    taken = msgspec.json.decode(line, type=FindingsTaken)
                    self.put(taken)
                    is_whole = taken.made_by is not None
                    if self.is_read():
                        self.ask()
        except (
            OSError,
            msgspec.DecodeError,
            ValueError,
        ):
            # ValueError: the bytes are no text, or the line has no end.
            pass
        finally:
            self._process = None
        return is_whole
