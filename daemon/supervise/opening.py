"""What is known of a run when its file is made: who is recorded, by whom, where and how."""

from __future__ import annotations

import os
import pwd
from importlib import metadata
from pathlib import Path

import msgspec

from profd.daemon import processes
from profd.daemon.secrets import mask_command, mask_line
from profd.daemon.store.records import DescribeFrame, Frame, FrameDescription, Identity, RunStarted
from profd.daemon.supervise.session import SessionOptions


def run_started(options: SessionOptions, control_socket: Path, now_ns: int) -> RunStarted:
    """Return the first record of a run that this process begins to write."""
    me = processes.read_stat(os.getpid())
    return RunStarted(
        id=options.run_id,
        name=options.name,
        mode=options.mode,
        target=Identity(options.pid, options.start_ticks),
        command=mask_command(options.command),
        cwd=processes.link(options.pid, "cwd"),
        host=os.uname().nodename,
        user=_user_name(),
        started_ns=now_ns,
        recorder=Identity(os.getpid(), me.start_ticks if me else 0),
        versions={
            "profd": metadata.version("profd"),
            "python": processes.python_version(options.pid) or "",
            "py_spy": metadata.version("py-spy"),
            "kernel": os.uname().release,
        },
        options={
            "rate_hz": options.rate_hz,
            "budget_percent": options.budget_percent,
            "subprocesses": options.subprocesses,
            "steps": options.steps,
            "source": options.source,
            "all_gpus": options.all_gpus,
            "duration_s": options.duration_s,
            "hang_after_s": options.hang_after_s,
        },
        control_socket=str(control_socket),
    )


def described(describe: DescribeFrame, *, with_source: bool) -> DescribeFrame:
    """Return a function that describes frames: their lines of source with secrets masked, or without these lines."""

    def masked(frame: Frame) -> FrameDescription:
        found = describe(frame)
        source = mask_line(found.source) if found.source and with_source else None
        return msgspec.structs.replace(found, source=source)

    return masked


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
