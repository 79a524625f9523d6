"""`profd stop`: end the session that records a run."""

from __future__ import annotations

import contextlib
import select

import click

from profd.cli.console import say
from profd.cli.options import run_argument
from profd.daemon.errors import SessionFailed
from profd.daemon.session.session import CLOSING_S, end_session


@click.command()
@run_argument()
def command(run: str) -> None:
    """End the session that records RUN, and wait until its file is closed. The target runs on.

    "latest" is the newest run that is live.
    """
    from profd.cli.liverun import find_live
    from profd.daemon.store.reader import RunReader

    with RunReader(find_live(run)) as reader:
        info = reader.info
    if not info.is_live:
        past = (
            "has ended already"
            if info.state == "ended"
            else "was cut off before: its recorder is gone"
        )
        say(f"{info.id} {past}")
        return
    with (
        contextlib.suppress(ProcessLookupError),
        contextlib.closing(end_session(info.recorder)) as watch,
    ):
        if not select.select([watch], [], [], CLOSING_S)[0]:
            what = (
                f"the session of {info.id} was asked to end, and has not within {CLOSING_S:.0f} s"
            )
            raise SessionFailed(
                what, f"what it recorded is safe; if it hangs: kill -9 {info.recorder.pid}"
            )
    say(f"{info.id} has ended and its file is closed; pid {info.target.pid} was left alone")
