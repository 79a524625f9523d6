"""Writes the report for whoever asks from the dashboard, and says in a message how that went."""

from __future__ import annotations

from pathlib import Path

from textual.message import Message

from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader


class ReportWritten(Message):
    """The report lies at ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


class ReportFailed(Message):
    """There is no report."""

    def __init__(self, error: ProfdError) -> None:
        super().__init__()
        self.error = error


def write_report_of(run_file: Path) -> ReportWritten | ReportFailed:
    """Write the report of a run into the current folder, by its own reader: to be called in a thread."""
    # The report's templates cost a tenth of a second to import, which a dashboard that writes none need not pay.
    from profd.daemon.render.report import write_report

    path = Path.cwd() / f"{run_file.stem}.html"
    try:
        with RunReader(run_file) as reader:
            write_report(reader, path)
    except ProfdError as error:
        return ReportFailed(error)
    return ReportWritten(path)
