"""`profd daemon`: supervise this host; every training that the rules name is recorded and reported by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import click
import msgspec

from profd.daemon import paths, processes
from profd.daemon.clock import AnchoredClock
from profd.daemon.errors import ProfdError
from profd.daemon.render.plaintext import aligned, titled
from profd.daemon.secrets import mask_command
from profd.daemon.service.configuration import Configuration, default_file, read_configuration
from profd.daemon.service.jobs import Jobs
from profd.daemon.service.log import JsonLog, SystemdNotifier
from profd.daemon.service.processes import Census, ProcessInfo, ProcTable, Rules, user_name
from profd.daemon.service.reports import CommandReporter
from profd.daemon.service.sessions import RealSessions
from profd.daemon.service.storage import RunRegistry, RunStorage, register_folder
from profd.daemon.service.supervisor import SingleInstanceLock, Supervisor

_COMMAND_WIDTH = 60


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration [default: daemon.toml in $PROFD_HOME or ~/.config/profd; docs/daemon.md].",
)
@click.option("--check", is_flag=True, help="Print what was understood, and what it would record now; record nothing.")
def command(file: Path | None, check: bool) -> None:
    """Find the trainings of this host by rules, record each at a low rate, and write their reports.

    Runs until SIGTERM; what it records goes on then, unless at_exit says otherwise. SIGHUP reloads the configuration.
    """
    configuration = _read(file)
    if configuration.folder:
        os.environ["PROFD_HOME"] = configuration.folder
    if check:
        click.echo(_checked(configuration))
        return
    processes.volunteer()  # reports and sessions inherit that
    with contextlib.closing(SingleInstanceLock(paths.runtime_folder())):
        asyncio.run(_supervise(file, configuration))


def _read(file: Path | None) -> Configuration:
    """Return the configuration that is named, or lies at its usual place; else one that has every default."""
    if file is None and not default_file().exists():
        return Configuration()
    return read_configuration(file or default_file())


async def _supervise(file: Path | None, configuration: Configuration) -> None:
    clock, table, journal = AnchoredClock(), ProcTable(), JsonLog(sys.stderr.buffer)
    register = RunRegistry(register_folder())
    shelf = RunStorage(paths.make_private(paths.runs_folder()), paths.runs_folder().with_name("reports"))
    sessions = RealSessions(configuration, register, clock)
    jobs = Jobs(
        Census(table, clock),
        table,
        Rules(configuration),
        journal,
        clock,
        lambda: sessions.configuration.most_of_one_user,
    )
    reporter = CommandReporter(shelf)
    supervisor = Supervisor(configuration, jobs, sessions, reporter, register, shelf, journal, clock)

    def reload() -> None:
        try:
            wanted = _read(file)
        except ProfdError as error:
            journal.say("unreloaded", f"the configuration stays as it was: {error}", level="error")
            return
        if wanted.folder != configuration.folder:
            journal.say("unreloaded", "the folder changes with a restart only", level="warning")
        sessions.configuration = wanted
        supervisor.use(wanted)
        journal.say("reloaded", "the configuration was read again")

    await supervisor.run(SystemdNotifier(), reload)


def _checked(configuration: Configuration) -> str:
    """Return what a configuration says, every default included, and the processes that meet it now."""
    values = msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode()
    most = f"at most {configuration.most_sessions} sessions at a time, in {paths.runs_folder()}"
    return "\n".join([values, most, "", _matches(configuration)])


def _matches(configuration: Configuration) -> str:
    table, rules = ProcTable(), Rules(configuration)
    rows = []
    for subject in Census(table, AnchoredClock()).poll():
        rule = rules.match(subject)
        if rule is not None:
            rows.append((str(subject.identity.pid), user_name(subject.uid), rule.name, _words(subject)))
    if not rows:
        return "No process that runs now meets a rule."
    return titled("Processes that meet a rule", aligned(("pid", "user", "rule", "command"), rows, right=("pid",)))


def _words(subject: ProcessInfo) -> str:
    text = " ".join(" ".join(mask_command(subject.command)).split())
    return text if len(text) <= _COMMAND_WIDTH else f"{text[: _COMMAND_WIDTH - 1]}…"
