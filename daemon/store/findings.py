"""The rows of table ``finding``: when each finding came and went.

Each analysis of the run writes them anew. A finding that returns soon after it went is taken not to
have gone: its row goes on, so that a finding at the threshold of its rule does not fill the file.
Only a finding that stayed away has an event that says so, at the time at which it went. Files that
are older than the table have no such rows.
"""

from __future__ import annotations

import sqlite3

import msgspec

from profd.daemon.clock import MINUTE_NS
from profd.daemon.events import EventKind
from profd.daemon.store.database import insert, row_of, set_meta
from profd.daemon.store.records import FindingsTaken
from profd.daemon.store.rows import FindingRow
from profd.daemon.store.runfile import RunFile

_GOES_ON = """
    UPDATE finding SET title = ?, report = ?, seen_ns = ?, to_ns = NULL
    WHERE NOT is_whole AND rule = ? AND severity = ? AND (to_ns IS NULL OR to_ns > ?)
"""


class RuleFound(msgspec.Struct, frozen=True, rename={"holds": "max(to_ns IS NULL)"}):
    """A rule that found something in the live run; ``holds`` says whether that is still there."""

    rule: str
    severity: str
    holds: bool


def findings_now(file: RunFile) -> list[FindingRow]:
    """Return the findings of the last part of a live run.

    After the end of the run, return those that held until then.
    """
    return file.fetch_from("finding", FindingRow, "NOT is_whole AND to_ns IS NULL ORDER BY id")


def findings_of_whole(file: RunFile) -> list[FindingRow]:
    """Return the findings of the whole run.

    Empty if ``RunInfo.findings_made_by`` says that it was not analyzed.
    """
    return file.fetch_from("finding", FindingRow, "is_whole ORDER BY id")


def rules_found(file: RunFile) -> list[RuleFound]:
    """Return each rule and severity that was found while the run was live."""
    where = "NOT is_whole GROUP BY 1, 2 ORDER BY 1, 2"
    return file.fetch_from("finding", RuleFound, where)


def write_findings(connection: sqlite3.Connection, taken: FindingsTaken) -> None:
    at_ns, is_whole = taken.at_ns, taken.made_by is not None
    for one in taken.findings:
        known = (one.title, one.report, at_ns, one.rule, one.severity, at_ns - MINUTE_NS)
        if is_whole or not connection.execute(_GOES_ON, known).rowcount:
            times = {"is_whole": is_whole, "from_ns": at_ns, "seen_ns": at_ns}
            insert(connection, "finding", row_of(one, "finding") | times)
            if not is_whole:
                _say(connection, at_ns, one.severity, one.title)
    if is_whole:
        connection.executemany("INSERT INTO answer VALUES (?,?)", taken.answers.items())
        set_meta(connection, findings_made_by=taken.made_by)
        return
    connection.execute(
        "UPDATE finding SET to_ns = ?1 WHERE NOT is_whole AND to_ns IS NULL AND seen_ns < ?1",
        (at_ns,),
    )
    say_gone(connection, at_ns, MINUTE_NS)
    set_meta(connection, analyzed_ns=at_ns, analysis_lost_ns=None)


def lose_analysis(connection: sqlite3.Connection, at_ns: int) -> None:
    """Record that from now on no analysis says whether a finding still holds."""
    connection.execute(
        "UPDATE finding SET to_ns = ? WHERE NOT is_whole AND to_ns IS NULL", (at_ns,)
    )
    set_meta(connection, analysis_lost_ns=at_ns)


def say_gone(connection: sqlite3.Connection, at_ns: int, away_ns: int = 0) -> None:
    """Write the events of the findings that have stayed away for ``away_ns``.

    Only findings count that reached this time since the last analysis was written.
    """
    said = connection.execute("SELECT value FROM meta WHERE name = 'analyzed_ns'").fetchone()
    after_ns = (said[0] if said else 0) - MINUTE_NS
    rows = connection.execute(
        "SELECT to_ns, severity, title FROM finding WHERE NOT is_whole AND to_ns > ? AND to_ns "
        "<= ? ORDER BY to_ns",
        (after_ns, at_ns - away_ns),
    ).fetchall()
    for to_ns, severity, title in rows:
        _say(connection, to_ns, severity, f"no longer found: {title}")


def _say(connection: sqlite3.Connection, at_ns: int, severity: str, text: str) -> None:
    """Write an event; findings that are only informational have none."""
    if severity != "info":
        connection.execute(
            "INSERT INTO event (at_ns, kind, text) VALUES (?,?,?)", (at_ns, EventKind.FINDING, text)
        )
