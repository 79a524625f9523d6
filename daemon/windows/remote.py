"""Has a running interpreter execute a file at its next safe point by ``sys.remote_exec``, which Python 3.14 brought.

The interpreter that asks must be of the same minor version as the one that is asked, so it need not be profd's own.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

from profd.daemon.userfiles import as_owner
from profd.daemon.windows.failure import WindowFailed

SOURCE = "remote_exec"
TIMEOUT_S = 15.0
_FIRST = (3, 14)
_PROGRAM = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def helper_for(
    version: str, own: tuple[int, ...] = sys.version_info[:2], executable: str = sys.executable
) -> str | None:
    """Return an interpreter that can ask one of ``version`` (``major.minor``); None where there is none."""
    try:
        asked = tuple(map(int, version.split(".")[:2]))
    except ValueError:  # an interpreter of unknown version
        return None
    if asked < _FIRST:
        return None
    return executable if asked == tuple(own[:2]) else shutil.which(f"python{asked[0]}.{asked[1]}")


async def execute(helper: str, pid: int, script: Path, timeout_s: float = TIMEOUT_S) -> None:
    """Have a process execute a script, a path as the process sees it; raises WindowFailed where it could not."""
    rights = as_owner(pid)
    failure = await _ask(helper, pid, script, timeout_s, rights)
    if failure and rights:  # Yama may let nobody but root
        failure = await _ask(helper, pid, script, timeout_s, {})
    if failure:
        raise WindowFailed(
            f"sys.remote_exec could not reach process {pid} ({failure[:200]})",
            "restart the command with `profd run --torch-window -- CMD`",
        )


async def _ask(helper: str, pid: int, script: Path, timeout_s: float, rights: dict[str, Any]) -> str:
    """Ask with these rights, and return why that failed; nothing where it did not."""
    try:
        process = await asyncio.create_subprocess_exec(
            helper, "-I", "-c", _PROGRAM, str(pid), str(script),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            **rights,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    try:
        _, said = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise WindowFailed(f"sys.remote_exec was not done with process {pid} within {timeout_s:.0f} s") from None
    lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
    return lines[-1] if process.returncode else ""
