"""Opens the runs that a command names, and gives its exit code."""

from __future__ import annotations

import contextlib

from profd.cli.console import say
from profd.daemon.api.opening import opened
from profd.daemon.errors import ExitCode
from profd.daemon.store.reader import RunReader


def open_run(run: str, job: str | None) -> contextlib.AbstractContextManager[RunReader]:
    """Give a reader of a run, or of a job in a folder, and say on stderr what was passed over.

    Raises NoSuchRun, RunUnreadable, MissingTool, UsageError.
    """
    return opened(run, job, say, bounded=True)


def code_of(*readers: RunReader, says_why: bool = True) -> ExitCode:
    """Return the exit code of a command that shows runs: 77 if one has ended without a sample.

    It also prints why, for each such run, unless ``says_why`` is False because the output says it.
    """
    empty = [reader for reader in readers if reader.is_over_without_samples]
    if says_why:
        from profd.daemon.render.summary import why_no_samples

        for reader in empty:
            name = f"{reader.info.id}: " if len(readers) > 1 else ""
            say(name + why_no_samples(reader))
    return ExitCode.NO_SAMPLES if empty else ExitCode.OK
