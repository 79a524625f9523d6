"""`profd doctor`: what works here, and how to mend what does not."""

from __future__ import annotations

import os
import shutil
import sys

import click

from profd.cli.console import print_json
from profd.cli.options import json_option
from profd.daemon.errors import ExitCode
from profd.daemon.render.plaintext import visible
from profd.daemon.session.doctor import Check, Verdict, examine

_MARKS = {Verdict.PASSED: ("✓", "green"), Verdict.NOTE: ("!", "yellow"), Verdict.FAILED: ("✗", "red")}
_LEAST_SIZE = os.terminal_size((80, 24))


@click.command()
@click.argument("pid", type=click.IntRange(min=1), required=False, metavar="[PID]")
@json_option
def command(pid: int | None, as_json: bool) -> int:
    """Check what profd needs on this machine, and with PID whether that process can be attached to.

    ✓ works, ! is worth knowing, ✗ keeps profd from its main job: then the exit code is not 0.
    """
    checks = [*examine(pid), check_terminal()]
    if as_json:
        print_json(checks)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark, color = _MARKS[check.verdict]
            click.echo(f"{click.style(mark, fg=color)} {check.name.ljust(width)}  {visible(check.found)}")
            if check.remedy:
                click.echo(f"  {' ' * width}  → {visible(check.remedy)}")
    # The process asked about comes last: its own code is the most telling one.
    failed = [check.exit_code or ExitCode.FAILURE for check in checks if check.verdict is Verdict.FAILED]
    return failed[-1] if failed else ExitCode.OK


def check_terminal() -> Check:
    if not sys.stdout.isatty():
        remedy = "the dashboard needs one; `--headless` does not"
        return Check("terminal", Verdict.NOTE, "stdout is no terminal", remedy)
    size = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "").lower()
    colors = "256 colors" if "256color" in os.environ.get("TERM", "") else "16 colors"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        colors = "16 million colors"
    if os.environ.get("NO_COLOR"):
        colors = "no colors (NO_COLOR)"
    found = f"{size.columns} by {size.lines}, {encoding}, {colors}"
    if "utf" not in encoding:
        return Check("terminal", Verdict.NOTE, found, "set a UTF-8 locale, as in LANG=C.UTF-8")
    if size < _LEAST_SIZE:
        return Check("terminal", Verdict.NOTE, found, f"make it at least {_LEAST_SIZE.columns} by {_LEAST_SIZE.lines}")
    return Check("terminal", Verdict.PASSED, found)
