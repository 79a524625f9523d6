from __future__ import annotations

import re
from pathlib import Path

from gallery import PLANTED
from support.findingruns import BUSY_WORKER, HEALTHY, LOAD_IN_PROCESS, step, write_case
from support.folders import DOCS
from support.training_stacks import DATA_WAIT, SYNCHRONIZE

from profd.daemon.analyze.functions import phase_shares
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.findings import catalog
from profd.daemon.findings.catalog import RULES, find
from profd.daemon.findings.finding import INFO
from profd.daemon.render.sections import finding_lines, verdict
from profd.daemon.store.reader import RunReader

ROOM = Path(catalog.__file__).parent
HERE = Path(__file__).parent
PAGE = (DOCS / "findings.md").read_text()
BOTH = step((LOAD_IN_PROCESS, 100), (SYNCHRONIZE, 200))


def test_what_brings_most_comes_first(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", BOTH)) as reader:
        found = find(reader)

    assert [one.rule for one in found] == ["synchronization", "input-bound-in-process"]


def test_the_share_of_a_finding_is_that_of_its_selection(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", BOTH)) as reader:
        phases = PhaseIndex(reader)
        for one in find(reader):
            phase = one.evidence.selection.phase
            assert phase is not None
            whole = Selection(one.evidence.from_ns, one.evidence.to_ns, main_threads=True)
            assert phase_shares(take_profile(reader, whole), phases)[phase] == one.evidence.measures[0].value
            assert (
                take_profile(reader, one.evidence.selection, phases).total_samples == one.evidence.measures[0].samples
            )


def test_a_range_of_time_has_its_own_findings(tmp_path: Path) -> None:
    steps = [step((LOAD_IN_PROCESS, 300))] * 30 + [HEALTHY] * 30
    with RunReader(write_case(tmp_path / "a.profd", *steps, seconds=60)) as reader:
        half_ns = reader.info.started_ns + 30 * SECOND_NS

        assert [one.rule for one in find(reader, Selection(to_ns=half_ns))] == ["input-bound-in-process"]
        assert find(reader, Selection(from_ns=half_ns)) == ()


def test_every_rule_has_its_page(tmp_path: Path) -> None:
    named = {rule for file in ROOM.glob("*.py") for rule in re.findall(r'rule="([\w-]+)"', file.read_text())}
    pages = set(re.findall(r"^## ([\w-]+)$", PAGE, re.MULTILINE))

    assert named == pages
    assert len(named) == len(RULES)


def test_the_table_of_rules_names_where_each_is_and_what_tests_it() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| `(\w+)\.py` \| `(\w+\.py)` \| (?:`(\w+)\.py`)?", PAGE, re.MULTILINE)
    for rule, module, test, _ in rows:
        assert f'rule="{rule}"' in (ROOM / f"{module}.py").read_text()
        imported = rf"^from .*findings(\.{module} import|import .*\b{module}\b)"
        assert re.search(imported, _unwrapped(HERE / test), re.MULTILINE)

    assert len(rows) == len(RULES)
    planted = {script: rule for rule, _, _, script in rows if script and not script.startswith("ddp")}
    assert planted == PLANTED


def _unwrapped(path: Path) -> str:
    """Return a file with each import on one line."""
    return re.sub(r"\((.*?)\)", lambda found: found[1].replace("\n", " "), path.read_text(), flags=re.DOTALL)


def test_the_verdict_is_the_strongest_finding_that_is_more_than_worth_knowing(tmp_path: Path) -> None:
    mild = step((LOAD_IN_PROCESS, 40))
    with RunReader(write_case(tmp_path / "a.profd", mild)) as reader:
        found = find(reader)

    assert [one.severity for one in found] == [INFO]
    phases = {"forward": 0.5, "backward": 0.4, "data load in process": 0.08, "optimizer": 0.02}
    assert verdict(found, phases).startswith("✓ healthy: 92 % of the training's time")
    assert [line[0] for line in finding_lines(found, phases, 200)] == ["✓", "·", " "]


def test_a_run_that_startup_takes_much_of_is_not_called_healthy() -> None:
    phases = {"startup, import": 0.4, "forward": 0.3, "backward": 0.27, "other": 0.03}
    assert (
        verdict((), phases)
        == "· 40 % of the time is startup and import; of the rest 95 % is forward, backward and optimizer"
    )
    assert verdict((), {"startup, import": 0.15, "forward": 0.8, "other": 0.05}).startswith("✓ healthy: 94 %")


def test_nothing_is_said_of_a_run_that_neither_trains_nor_suffers() -> None:
    assert verdict((), {"waiting": 0.9, "other": 0.1}) == ""


def test_workers_that_keep_up_are_healthy(tmp_path: Path) -> None:
    path = write_case(tmp_path / "a.profd", step((DATA_WAIT, 15)), workers={1: BUSY_WORKER})
    with RunReader(path) as reader:
        assert find(reader) == ()
