"""The exporter's process: ``python -m profd.daemon.metrics FILE|FOLDER [ADDRESS]``.

For a FILE it ends with the run, for a FOLDER at a signal. It says its address and its errors on
stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from profd.daemon import paths, processes, rights, standardstreams
from profd.daemon.errors import NoSuchRun, ProfdError, UsageError
from profd.daemon.metrics.exporter import (
    check_endpoint,
    check_installed,
    listen,
    parse_address,
    url_of,
)
from profd.daemon.metrics.runs import Runs


def main(words: Sequence[str]) -> int:
    """Give out metrics until the run ends, or a signal says stop; returns the exit code."""
    # A launcher holds its signals back, and this process would inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    standardstreams.open_stderr()
    os.nice(10)
    processes.volunteer(600)  # before the session
    parser = argparse.ArgumentParser(prog="python -m profd.daemon.metrics", allow_abbrev=False)
    parser.add_argument("path", type=Path, help="a live run file, or a folder of runs")
    parser.add_argument("address", nargs="?", help="where to serve: [HOST:]PORT")
    parser.add_argument("--otlp", metavar="ENDPOINT", help="URL of an OpenTelemetry receiver")
    parser.add_argument(
        "--listener-fd", type=int, metavar="FD", help="a socket that listens already"
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="where stderr goes: removed where nothing was said"
    )
    parser.add_argument("--while-stdin", action="store_true", help="end when stdin is closed")
    options = parser.parse_args(words)
    # It reads files of its own user, and answers any request.
    path: Path = options.path.resolve()
    rights.drop(
        path if path.is_dir() else path.parent, *([options.log.parent] if options.log else [])
    )
    try:
        _export(options, stop)
    except ProfdError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    finally:
        with contextlib.suppress(OSError):
            if options.log is not None and not options.log.stat().st_size:
                options.log.unlink()
    return 0


def _export(options: argparse.Namespace, stop: threading.Event) -> None:
    """Serve and send until it is time to end; raises ProfdError."""
    path: Path = options.path
    is_folder = path.is_dir()
    runs = Runs(lambda: path.glob(f"*{paths.SUFFIX}") if is_folder else (path,))
    if not is_folder:
        runs.look_for_runs()
        if not runs.is_any():
            raise NoSuchRun(
                f"{path} is not being recorded",
                "only live runs have metrics; `profd summary` reads others",
            )
    listener = _listener(options)
    if listener is not None:
        check_installed("metrics")
        from profd.daemon.metrics.scrapes import Server

        Server(listener, runs.samples).start()
        sys.stderr.write(
            "" if options.listener_fd is not None else f"metrics at {url_of(listener)}\n"
        )
    sender = None
    if options.otlp is not None:
        check_installed("otlp")
        check_endpoint(options.otlp)
        from profd.daemon.metrics.otlp import Sender

        sender = Sender(options.otlp, runs.samples)
    while not stop.is_set() and (is_folder or runs.is_any()):
        is_told = options.while_stdin and select.select([sys.stdin.fileno()], [], [], 0)[0]
        if is_told and not os.read(sys.stdin.fileno(), 1):
            break  # the process at the other end of the pipe is gone
        stop.wait(2.0)  # at most so long after its run the process ends
    if sender is not None:
        sender.close()


def _listener(options: argparse.Namespace) -> socket.socket | None:
    if options.listener_fd is not None:
        return socket.socket(fileno=options.listener_fd)
    if options.address is not None:
        return listen(parse_address(options.address))
    if options.otlp is None:
        raise UsageError(
            "there is nowhere to give metrics to", "give an address to serve at, or --otlp ENDPOINT"
        )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
