"""Data sets with planted answers, made by the generator of the benchmarks out of a synthetic run."""

from __future__ import annotations

from pathlib import Path

import msgspec
from fleet.fleetgen import Plan, Truth, make_fleet
from fleet.fleettemplate import Template, take_template

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.fleet import Question, ask
from profd.daemon.store.reader import RunReader
from support.synthetic import write_run

PLAN = Plan(rows=20_000, jobs=6, nodes=5, runs=4, gpus=2)


def template(folder: Path) -> Template:
    """Return the template of a run of two whole minutes."""
    return take_template(write_run(folder / "template.profd", seconds=130))


def make(folder: Path, plan: Plan = PLAN) -> Truth:
    return make_fleet(DataSet(str(folder / "fleet")), template(folder), plan)


def asked(folder: Path, question: Question | None = None) -> Fleet:
    """Return the answers of the data set that ``make`` made."""
    return ask(DataSet(str(folder / "fleet")), question or Question())


def renamed(path: Path, **fields: str) -> RunReader:
    """Open a run as one of another name or host."""
    reader = RunReader(path)
    reader.info = msgspec.structs.replace(reader.info, **fields)
    return reader
