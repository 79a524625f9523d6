"""Has a running interpreter execute a file at its next safe point by ``sys.remote_exec``, which Python 3.14 brought.

The interpreter that asks must be of the same minor version as the one that is asked, so it need not be profd's own.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from profd.daemon.windows.failure import WindowFailed

SOURCE = "remote_exec"
TIMEOUT_S = 15.0
_FIRST = (3, 14)
_ASK = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


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
    process = await asyncio.create_subprocess_exec(
        helper, "-I", "-c", _ASK, str(pid), str(script),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        _, said = await asyncio.wait_for(process.communicate(), timeout_s)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        raise WindowFailed(f"sys.remote_exec was not done with process {pid} within {timeout_s:.0f} s") from None
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise WindowFailed(
            f"sys.remote_exec could not reach process {pid} ({lines[-1][:200]})",
            "restart the command with `profd run --torch-window -- CMD`",
        )
