"""Files that are written for whoever asks from the dashboard, into the current folder: the report and exports.

Each is made by a reader of its own, so that the feed's thread is not held up.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from textual.message import Message

from profd.daemon.analyze.selection import Selection
from profd.daemon.errors import ProfdError
from profd.daemon.store.reader import RunReader
from profd.tui.errands.outcomes import ErrandDone, ErrandFailed, ReportFailed, ReportWritten


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


def export(run_file: Path, form: str, selection: Selection) -> Message:
    """Write a run in the format of another tool into the current folder."""
    # Every format is a module of its own, and none is imported before it is asked for.
    from profd.daemon.render.exports import formats
    from profd.daemon.render.outfile import write_whole

    path = Path.cwd() / f"{run_file.stem}{formats.ENDINGS[form]}"
    if form in formats.OF_ALL_THREADS:
        selection = msgspec.structs.replace(selection, main_threads=False)
    try:
        with RunReader(run_file) as reader, reader.one_moment():
            if form in formats.TABLES:
                formats.write_tables(formats.tables(reader, selection, form), path)
            else:
                write_whole(path, formats.file_content(reader, selection, form))
    except ProfdError as error:
        return ErrandFailed(error, "Nothing exported")
    return ErrandDone(str(path), "Exported")
