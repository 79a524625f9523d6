"""The session's process: ``python -m profd.daemon.session``, with its options as JSON on stdin.

Answers one line on stdout and closes it. What it does then is in ``recorder``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from profd.daemon import paths, processes
from profd.daemon.clock import AnchoredClock
from profd.daemon.errors import ProfdError
from profd.daemon.session.recorder import Recorder
from profd.daemon.session.session import Failed, Ready, decode_options, encode


def _announce(word: Ready | Failed) -> None:
    """Say the first and only word on stdout, and let go of it: whoever started the session waits for its end."""
    with contextlib.suppress(BrokenPipeError):  # whoever started the session is gone; it records all the same
        os.write(1, encode(word))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def main() -> int:
    """Record a run; returns the exit code of the session's process."""
    # The launcher holds its signals back, and this process, py-spy's parent, would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Ignored, it would be the kernel that reaps py-spy, and nobody could say what it cost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    processes.volunteer()
    options = decode_options(sys.stdin.buffer.read())
    recorder = Recorder(options, AnchoredClock())
    try:
        asyncio.run(recorder.run(_announce))
    except ProfdError as error:
        if recorder.has_begun:
            sys.stderr.write(f"{error}\n")
        else:
            _announce(Failed(type(error).__name__, error.what, error.remedy))
        return int(error.exit_code)
    finally:
        _remove_empty_log(options.run_id)
    return 0


def _remove_empty_log(run_id: str) -> None:
    """Remove what stderr was sent to where nothing was said."""
    with contextlib.suppress(OSError, ProfdError):
        log = paths.runtime_folder() / f"{run_id}.log"
        if not log.stat().st_size:
            log.unlink()


if __name__ == "__main__":
    sys.exit(main())
