"""A finding of a live run is the same everywhere at once: dashboard, metrics, events, and the log of the service."""

from __future__ import annotations

from pathlib import Path

from support.hostfakes import Said, entry_of
from support.metricvalues import value, watch
from support.synthetic import live_run

from profd.daemon import paths
from profd.daemon.findings.analyst import Analyst
from profd.daemon.metrics import catalog
from profd.daemon.service.reports import Incidents
from profd.daemon.service.sessions import run_file
from profd.daemon.store.reader import RunReader
from profd.tui.findings import Analysis, Findings


def test_what_one_look_finds_is_shown_by_all_in_the_same_words(profd_home: Path) -> None:
    paths.make_private(paths.runs_folder())
    entry, said = entry_of(7), Said()
    with live_run(run_file(entry.run_id), seconds=20) as run:
        taken = Analyst(run.path).look()
        assert run.writer.put(taken)
        run.advance()
        with RunReader(run.path) as reader:
            shown = Findings(reader, Analysis(()))
            assert shown.renew()
            events = [event.text for event in reader.events() if event.kind == "finding"]
        Incidents(said, lambda _: None).look({entry.run_id: entry})
        samples = watch(run.path).take()

    (found,) = taken.findings
    assert [one.title for one in shown.findings] == [found.title]
    assert [line.message for line in said.lines] == [found.title]
    assert events == [found.title]
    assert value(samples, catalog.FINDING, found.rule, found.severity) == 1
