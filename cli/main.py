"""The entry of the command line: finds the named command, and turns what went wrong into one line and an exit code.

Knows where each command lies and what it is for in one line, so that the list of commands costs no import of any.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import click

from profd.cli.console import say
from profd.daemon.errors import ExitCode, ProfdError

INTERRUPTED = 130
"""128 + SIGINT, as a shell reports a program that Ctrl-C ended."""


class CommandPlace(NamedTuple):
    """The module of a command, and its line in the list of commands."""

    module: str
    summary: str


COMMANDS = {
    "run": CommandPlace("profd.cli.run", "Launch a command and profile it."),
    "attach": CommandPlace("profd.cli.attach", "Profile a running process and its children."),
    "demo": CommandPlace("profd.cli.demo", "Run a bundled training script and profile it."),
    "view": CommandPlace("profd.cli.view", "Open the dashboard on a live or finished run."),
    "ls": CommandPlace("profd.cli.ls", "List runs, and the processes that can be attached to."),
    "dump": CommandPlace("profd.cli.dump", "Print the stacks of a whole process tree, now."),
    "window": CommandPlace("profd.cli.window", "Take a torch.profiler window of a live run."),
    "summary": CommandPlace("profd.cli.summary", "Say where the time of a run went."),
    "report": CommandPlace("profd.cli.report", "Write a self-contained HTML report of a run."),
    "export": CommandPlace("profd.cli.export", "Write the samples of a run for another tool."),
    "diff": CommandPlace("profd.cli.diff", "Say what changed from one run to another."),
    "fleet": CommandPlace("profd.cli.fleet", "Say what many runs together lose, and where."),
    "stop": CommandPlace("profd.cli.stop", "End a profiling session; its target runs on."),
    "daemon": CommandPlace("profd.cli.daemon", "Supervise this host: record and report its trainings."),
    "doctor": CommandPlace("profd.cli.doctor", "Say what works here, and how to mend what does not."),
}


class LazyCommands(click.Group):
    """A group whose commands are imported when they are named, and not before."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import and return the named command; None where there is none."""
        place = COMMANDS.get(name)
        if place is None:
            return None
        command: click.Command = importlib.import_module(place.module).command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="profd", message="%(prog)s %(version)s")
def profd() -> None:
    """Say where the time of a Python training run goes, from outside of it.

    RUN is a path, an id, a unique prefix of an id or name, or "latest".
    """


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run the named command and return the exit code; failures are told on stderr, one line each."""
    try:
        code = profd.main(args=arguments, prog_name="profd", standalone_mode=False)
        if sys.stdout:
            sys.stdout.flush()
    except ProfdError as error:
        say(str(error))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return ExitCode.FAILURE
    return code if isinstance(code, int) else ExitCode.OK


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Where the terminal's encoding lacks a character, a `?` will do: it is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run_command_line())


def _silence_stdout() -> None:
    """Send what is still buffered nowhere: nobody reads it, and the interpreter would complain of that at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
