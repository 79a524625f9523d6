"""A number of a run is the same wherever it is shown: dashboard, report, summary, JSON, exports,
metrics and fleet.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from support.agreementruns import RUNS
from support.browser import OpenReport
from support.folders import DOCS
from support.shown.dashboard import of_dashboard
from support.shown.exports import of_exports, of_fleet, of_metrics
from support.shown.numbers import Number
from support.shown.report import of_report
from support.shown.summary import of_json, of_text

ALL_VIEWS = "all views"
ELSEWHERE = {
    "self CUDA share of an operator": "two ranks with a window",
    "memory of a role": "two ranks with a window",
    "error of the step rate": "steps-tqdm",
    "own work of a rank": "ranks-slow-data",
    "waiting of a rank": "ranks-slow-data",
}
"""The run on which a number is compared that the run with all views does not have."""
ROUNDING = 1e-9

Shown = Mapping[tuple[str, str], Mapping[str, Number]]
"""By kind and what a number is of: the number by the part of the product that shows it."""


def numbers_of(path: Path, open_report: OpenReport, folder: Path) -> Shown:
    """Return what is shown of a run in two or more places."""
    taken: dict[str, Iterable[Number]] = {
        "J": of_json(path),
        "S": of_text(path),
        "D": of_dashboard(path),
        "R": of_report(path, open_report),
        "X": of_exports(path, folder / "csv"),
        "M": of_metrics(path),
        "F": of_fleet(path, folder / "data"),
    }
    shown: defaultdict[tuple[str, str], dict[str, Number]] = defaultdict(dict)
    for place, numbers in taken.items():
        seen = list(numbers)
        of_one_name = Counter((number.kind, number.of) for number in seen)
        for number in seen:
            if of_one_name[number.kind, number.of] == 1:
                shown[number.kind, number.of][place] = number
    return {key: places for key, places in shown.items() if len(places) > 1}


def documented() -> dict[str, set[str]]:
    """Return what docs/architecture.md says of where numbers are shown, by their kinds."""
    table = (
        (DOCS / "architecture.md")
        .read_text()
        .partition("## Where each number comes from")[2]
        .partition("\n## ")[0]
    )
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([A-Z ]+) \|$", table, re.MULTILINE)
    return {kind: set(places.split()) for kinds, places in rows for kind in kinds.split(", ")}


@pytest.mark.by_user  # a replay reads files as their user
@pytest.mark.parametrize("name", RUNS)
def test_a_number_is_the_same_wherever_it_is_shown(
    name: str, open_report: OpenReport, tmp_path: Path
) -> None:
    RUNS[name](tmp_path / "run.profd")
    shown = numbers_of(tmp_path / "run.profd", open_report, tmp_path)
    different = {
        key: places
        for key, places in shown.items()
        if max(one.low for one in places.values())
        > min(one.high for one in places.values()) + _rounding(places)
    }
    assert not different
    kinds = {kind for kind, _ in shown}
    assert {kind for kind in documented() if ELSEWHERE.get(kind, ALL_VIEWS) == name} <= kinds
    assert {"duration", "findings", "events"} <= kinds <= documented().keys()
    assert {(kind, place) for (kind, _), places in shown.items() for place in places} <= {
        (kind, place) for kind, places in documented().items() for place in places
    }


def _rounding(places: Mapping[str, Number]) -> float:
    return ROUNDING * max(1.0, *(abs(one.high) for one in places.values()))


def test_each_kind_of_number_is_compared_between_two_places_or_more() -> None:
    assert min(map(len, documented().values())) >= 2
    assert ELSEWHERE.keys() <= documented().keys()
