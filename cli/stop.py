"""`profd stop`: end a session from outside; its target runs on."""

from __future__ import annotations

import contextlib
import select
from pathlib import Path

import click

from profd.cli.console import say
from profd.cli.options import run_argument
from profd.daemon import paths
from profd.daemon.errors import SessionFailed
from profd.daemon.session.session import end_session
from profd.daemon.store.reader import RunReader
from profd.daemon.store.rows import RunInfo

_PATIENCE_S = 30.0
_PAST = {"ended": "has ended already", "interrupted": "was cut off before: its recorder is gone"}


@click.command()
@run_argument
def command(run: str) -> None:
    """End the session that records RUN, and wait until its file is closed. The target runs on."""
    info = read_info(paths.find_run(run))
    if info.state != "live":
        say(f"{info.id} {_PAST[info.state]}")
        return
    stop_session(info)
    say(f"{info.id} has ended and its file is closed; pid {info.pid} was left alone")


def read_info(path: Path) -> RunInfo:
    """Return what a run file says of its run as a whole; raises RunUnreadable."""
    with RunReader(path) as reader:
        return reader.info


def stop_session(info: RunInfo, patience_s: float = _PATIENCE_S) -> None:
    """End the session of a live run, and return once it has closed its file and is gone.

    Raises SessionFailed where the session is not ours to end, or takes longer than ``patience_s`` seconds.
    """
    try:
        watch = end_session(info.recorder)
    except ProcessLookupError:
        return
    with contextlib.closing(watch):
        if not select.select([watch], [], [], patience_s)[0]:
            raise SessionFailed(
                f"the session of {info.id} was asked to end, and has not within {patience_s:.0f} s",
                f"what it recorded is safe; if it hangs: kill -9 {info.recorder.pid}",
            )
