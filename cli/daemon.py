"""`profd daemon`: supervise this host.

It records and reports every training that the rules name.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from functools import partial
from pathlib import Path

import click
import msgspec

from profd.cli.console import short_command
from profd.daemon import paths, processes
from profd.daemon.clock import Clock
from profd.daemon.errors import ProfdError
from profd.daemon.render.plaintext import aligned, titled
from profd.daemon.secrets import mask_command
from profd.daemon.service.configuration import Configuration, default_file, read_configuration
from profd.daemon.service.jobs import Jobs
from profd.daemon.service.log import JsonLog, SystemdNotifier
from profd.daemon.service.reports import write_report
from profd.daemon.service.scanner import HostProcesses, ProcessScanner, matching_rule
from profd.daemon.service.sessions import Sessions
from profd.daemon.service.storage import RunRegistry, RunStorage, register_folder
from profd.daemon.service.supervisor import SingleInstanceLock, Supervisor


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration [default: daemon.toml in $PROFD_HOME or ~/.config/profd; "
    "docs/daemon.md].",
)
@click.option(
    "--check",
    is_flag=True,
    help="Print what was understood, and what it would record now; record nothing.",
)
def command(file: Path | None, check: bool) -> None:
    """Find the trainings of this host by rules, record each at a low rate, and write their reports.

    Runs until SIGTERM; what it records goes on then, unless at_exit says otherwise. SIGHUP reloads
    the configuration.
    """
    configuration = _read(file)
    if configuration.folder:
        os.environ["PROFD_HOME"] = configuration.folder
    if check:
        click.echo(_checked(configuration))
        return
    processes.volunteer()  # reports and sessions inherit this
    with contextlib.closing(SingleInstanceLock(paths.runtime_folder())):
        asyncio.run(_supervise(file, configuration))


def _read(file: Path | None) -> Configuration:
    if file is None and not default_file().exists():
        return Configuration()
    return read_configuration(file or default_file())


async def _supervise(file: Path | None, configuration: Configuration) -> None:
    clock, log = Clock(), JsonLog(io.FileIO(2, "w", closefd=False))
    registry = RunRegistry(register_folder())
    storage = RunStorage(
        paths.make_private(paths.runs_folder()), paths.runs_folder().with_name("reports")
    )
    jobs, sessions = (
        Jobs(HostProcesses(), configuration, log, clock),
        Sessions(configuration, registry),
    )
    report = partial(write_report, storage)
    supervisor = Supervisor(configuration, jobs, sessions, report, registry, storage, log, clock)

    def reload() -> None:
        try:
            wanted = _read(file)
        except ProfdError as error:
            log.say("unreloaded", f"the configuration stays as it was: {error}", level="error")
            return
        if wanted.folder != configuration.folder:
            log.say("unreloaded", "the folder changes with a restart only", level="warning")
        supervisor.use(wanted)
        log.say("reloaded", "the configuration was read again")

    await supervisor.run(SystemdNotifier(), reload)


def _checked(configuration: Configuration) -> str:
    values = msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode()
    most = f"at most {configuration.most_sessions} sessions at a time, in {paths.runs_folder()}"
    rows = []
    for process in ProcessScanner(HostProcesses(), Clock()).poll():
        rule = matching_rule(configuration, process)
        if rule is not None:
            words = short_command(mask_command(process.command))
            rows.append(
                (str(process.identity.pid), processes.user_name(process.uid), rule.name, words)
            )
    matches = "No process that runs now meets a rule."
    if rows:
        table = aligned(("pid", "user", "rule", "command"), rows, right=("pid",))
        matches = titled("Processes that meet a rule", table)
    return "\n".join([values, most, "", matches])
