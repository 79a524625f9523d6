"""Run the session's process: ``python -m profd.daemon.session``, its options as JSON on stdin.

It answers one line on stdout and closes it; then ``recorder`` records.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

# asyncio loads ssl if it can: 1.5 MB that nothing here uses.
sys.modules["ssl"] = None  # type: ignore[assignment]
import asyncio

del sys.modules["ssl"]

from profd.daemon import paths, processes, scheduling, standardstreams
from profd.daemon.clock import Clock
from profd.daemon.errors import ProfdError
from profd.daemon.session.recorder import Recorder
from profd.daemon.session.session import Ready, StartFailed, decode_options, encode


def _announce(word: Ready | StartFailed) -> None:
    """Answer on stdout and close it, since the starter reads to its end."""
    # If the starter is gone, the session records all the same.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, encode(word))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _begin(ready: Ready) -> None:
    """Announce that all is in place.

    From here on other processes come first; until here somebody waits for the first sample.
    """
    scheduling.give_way_as_session()
    _announce(ready)


def main() -> int:
    """Record a run and return the exit code of the session's process."""
    # The launcher blocks its signals; this process, py-spy's parent, would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # If SIGCHLD were ignored, the kernel would reap py-spy, and its cost would be unknown.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    standardstreams.open_stderr()
    processes.volunteer()
    processes.share_heap()
    # Not sys.stdin: that of a fork is its starter's.
    options = decode_options(open(0, "rb", closefd=False).read())  # noqa: SIM115
    recorder = Recorder(options, Clock())
    try:
        asyncio.run(recorder.run(_begin))
    except ProfdError as error:
        if recorder.has_begun:
            sys.stderr.write(f"{error}\n")
        else:
            _announce(StartFailed(type(error).__name__, error.what, error.remedy))
        return int(error.exit_code)
    finally:
        with contextlib.suppress(OSError, ProfdError):
            log = paths.runtime_folder() / f"{options.run_id}.log"  # of stderr
            if not log.stat().st_size:
                log.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
