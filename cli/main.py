"""The entry of the command line.

It finds the named command, and turns an error into one line and an exit code. It holds the summary
of each command, so that the list of commands imports none of them.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from profd.cli.console import close_stdout, say
from profd.daemon import VERSION
from profd.daemon.errors import ExitCode, ProfdError, UsageError, is_out_of_memory
from profd.daemon.standardstreams import open_streams

COMMANDS = {
    "run": "Launch a command and profile it.",
    "attach": "Profile a running process and its children.",
    "demo": "Run a bundled training script and profile it.",
    "view": "Open the dashboard on a live or finished run.",
    "ls": "List runs, and the processes that can be attached to.",
    "dump": "Print the stacks of a whole process tree, now.",
    "window": "Take a torch.profiler window of a live run.",
    "summary": "Say where the time of a run went.",
    "report": "Write a self-contained HTML report of a run.",
    "export": "Write the samples of a run for another tool.",
    "diff": "Say what changed from one run, or part of a run, to another.",
    "fleet": "Say what many runs together lose, and where.",
    "stop": "End a profiling session; its target runs on.",
    "daemon": "Supervise this host: record and report its trainings.",
    "mcp": "Answer an assistant about runs (Model Context Protocol).",
    "doctor": "Say what works here, and how to mend what does not.",
}
"""Each command's module is named after it, and has a function ``command``."""


def load_command(name: str) -> click.Command:
    command: click.Command = importlib.import_module(f"profd.cli.{name}").command
    command.short_help = COMMANDS[name]  # for the completion of shells
    return command


class LazyCommands(click.Group):
    """A group whose commands are imported only when they are named."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return load_command(name) if name in COMMANDS else None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name in COMMANDS or name.startswith("-") or context.resilient_parsing:
            return super().resolve_command(context, arguments)
        raise UsageError(f"there is no command {name}", _meant(arguments))

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(VERSION, prog_name="profd", message="%(prog)s %(version)s")
def profd() -> None:
    """Say where the time of a Python training run goes, from outside of it.

    RUN is a path, an id, a unique prefix of an id or name, or "latest", which it is by default.
    """


def _meant(words: Sequence[str]) -> str:
    """Return the command that somebody most likely meant by words that begin with no command."""
    import difflib
    import shutil

    name = words[0]
    if close := difflib.get_close_matches(name, COMMANDS, 1):
        return f"`profd {close[0]}`"
    if name.isdecimal():
        return f"`profd attach {name}`"
    from profd.daemon.launch.script import command_of

    is_file = os.path.isfile(name)  # noqa: PTH113  Path raises for long names
    if is_file or name.endswith(".py") or shutil.which(name):
        program = command_of(name) if is_file or name.endswith(".py") else [name]
        return f"`profd run -- {shlex.join([*program, *words[1:]])}`"
    return "`profd --help` lists the commands"


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run the named command and return the exit code.

    Failures are printed on stderr, one line each. The code is -N if this process is to die of the
    signal N, as the script of `profd run` did.
    """
    if "_PROFD_COMPLETE" in os.environ:
        from profd.cli import completion

        completion.offer()
    try:
        code = profd.main(args=arguments, prog_name="profd", standalone_mode=False)
    except ProfdError as error:
        say(str(error))
        return error.exit_code
    except click.NoSuchOption as error:
        command = error.ctx.command_path if error.ctx else "profd"
        close = error.possibilities or [f"{command} --help"]
        say(f"`{command}` has no option {error.option_name}: `{close[0]}`")
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    # The cause is the machine, not this code, so the system's own message is all there is to say.
    except OSError as error:
        what = f"{error.filename or 'a call of the system'} failed"
        say(str(ProfdError.of_system(what, error)))
        return ExitCode.FAILURE
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        say("the system gives profd no more memory or threads: end something, or raise `ulimit`")
        return ExitCode.FAILURE
    return code if isinstance(code, int) else ExitCode.OK


def main() -> NoReturn:
    stdout = open_streams()
    end_with(close_stdout(stdout, run_command_line()))


def end_with(code: int) -> NoReturn:
    """End this process with an exit code, or by the signal N if the code is -N."""
    if code < 0:
        from profd.daemon.launch.signals import die_of

        die_of(-code)
        # A shell reports a program that a signal ended by this number plus the signal's.
        code = 128 - code
    sys.exit(code)
