from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from findings.gallery import PLANTED
from support.findingruns import HEALTHY, LOAD_IN_PROCESS, Case, look, step, write_case
from support.folders import DOCS
from support.present import there
from support.synthetic import STARTED_NS, live_run, write_run
from support.training_stacks import SYNCHRONIZE

from profd import daemon
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import phase_shares, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import RunUnreadable
from profd.daemon.findings import catalog
from profd.daemon.findings.catalog import (
    RULES,
    analysis_name,
    as_stored,
    find,
    findings_in,
    present_findings,
    ranked,
)
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding, Measure
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.rule import without_hidden
from profd.daemon.findings.texts import table
from profd.daemon.render.plaintext import WIDTH, joined
from profd.daemon.render.sections import finding_lines, verdict
from profd.daemon.render.summary import summarize
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import FindingsTaken

ROOM = Path(catalog.__file__).parent
HERE = Path(__file__).parent
PAGE = (DOCS / "findings.md").read_text()
SAMPLES = 2_000
BOTH = step((LOAD_IN_PROCESS, 100), (SYNCHRONIZE, 200))


def test_what_brings_most_comes_first(case: Case) -> None:
    assert [one.rule for one in case.findings(BOTH)] == [
        "synchronization",
        "input-bound-in-process",
    ]


def test_causes_come_before_symptoms_both_before_remarks_and_what_is_alike_as_in_the_table(
    case: Case,
) -> None:
    one = case.findings(BOTH)[0]
    alike = [
        msgspec.structs.replace(one, rule=rule)
        for rule in ("of an older version", "slow-down", "straggler")
    ]
    ranks = {
        "allocator-churn": "critical",
        "straggler": INFO,
        "overhead": "warning",
        "oversubscription": INFO,
    }
    unlike = [
        msgspec.structs.replace(one, rule=rule, severity=severity)
        for rule, severity in ranks.items()
    ]

    assert [each.rule for each in ranked(alike)] == [
        "straggler",
        "slow-down",
        "of an older version",
    ]
    assert [each.rule for each in ranked(unlike)] == [
        "overhead",
        "allocator-churn",
        "straggler",
        "oversubscription",
    ]


def test_a_line_whose_growth_is_half_of_its_share_is_only_a_slow_down(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", BOTH)) as reader:
        one = find(reader)[0]

        def found(rule: str, value: float) -> Finding:
            evidence = msgspec.structs.replace(one.evidence, measures=(Measure("", value),))
            return msgspec.structs.replace(one, rule=rule, evidence=evidence)

        def rules(times_longer: float, share: float) -> list[str]:
            grown, lost = found("slow-down", times_longer), found("overhead", share)
            both = {(lambda _: grown): grown, overhead: lost}
            return sorted(each.rule for each in without_hidden(both))

        assert rules(1.83, 0.57) == ["slow-down"]
        assert rules(1.3, 0.57) == ["overhead", "slow-down"]


def test_the_share_of_a_finding_is_that_of_its_selection(tmp_path: Path) -> None:
    with RunReader(write_case(tmp_path / "a.profd", BOTH)) as reader:
        phases = PhaseIndex(reader)
        for one in find(reader):
            phase = there(one.evidence.selection.phase)
            whole = Selection(one.evidence.from_ns, one.evidence.to_ns, main_threads=True)
            assert (
                phase_shares(take_profile(reader, whole), phases)[phase]
                == one.evidence.measures[0].value
            )
            assert (
                take_profile(reader, one.evidence.selection, phases).total_samples
                == one.evidence.measures[0].samples
            )


def test_a_range_of_time_has_its_own_findings(tmp_path: Path) -> None:
    steps = [step((LOAD_IN_PROCESS, 300))] * 30 + [HEALTHY] * 30
    with RunReader(write_case(tmp_path / "a.profd", *steps, seconds=60)) as reader:
        half_ns = reader.info.started_ns + 30 * SECOND_NS

        assert [one.rule for one in find(reader, Selection(to_ns=half_ns))] == [
            "input-bound-in-process"
        ]
        assert find(reader, Selection(from_ns=half_ns)) == ()


def test_every_rule_has_its_page() -> None:
    named = {one.rule or name for name, one in table().finding.items()}
    pages = set(re.findall(r"^## ([\w-]+)$", PAGE, re.MULTILINE))

    assert named == pages
    assert len(named) == len(RULES)


def test_the_table_of_rules_names_where_each_is_and_what_tests_it() -> None:
    rows = re.findall(
        r"^\| ([\w-]+) \| `(\w+)\.py` \| `(\w+\.py)` \| (?:`(\w+)\.py`)?", PAGE, re.MULTILINE
    )
    for rule, module, test, _ in rows:
        assert f'"{rule}"' in (ROOM / f"{module}.py").read_text()
        imported = rf"^from .*findings(\.{module} import|import .*\b{module}\b)"
        assert re.search(imported, _unwrapped(HERE / test), re.MULTILINE)

    assert len(rows) == len(RULES)
    planted = {
        script: rule for rule, _, _, script in rows if script and not script.startswith("ddp")
    }
    assert planted == PLANTED


def _unwrapped(path: Path) -> str:
    """Return a file with each import on one line."""
    return re.sub(
        r"\((.*?)\)", lambda found: found[1].replace("\n", " "), path.read_text(), flags=re.DOTALL
    )


def test_the_verdict_is_the_strongest_finding_that_is_more_than_worth_knowing(case: Case) -> None:
    found = case.findings(step((LOAD_IN_PROCESS, 40)))
    assert [one.severity for one in found] == [INFO]
    phases = {"forward": 0.5, "backward": 0.4, "data load in process": 0.08, "optimizer": 0.02}
    assert verdict(found, phases, SAMPLES).startswith("✓ all compute: 92 % of the training's time")
    text = joined(finding_lines(found, phases, SAMPLES), WIDTH)
    assert [line[0] for line in text.splitlines() if not line.startswith(" ")] == ["✓", "·"]
    assert "profd run --torch-window" in " ".join(text.split())
    large = [msgspec.structs.replace(found[0], gain_bound=3.1)]
    assert verdict(large, phases, SAMPLES) == f"· {found[0].title}"
    lines = joined(finding_lines(large, phases, SAMPLES), WIDTH).splitlines()
    assert [line[0] for line in lines if not line.startswith(" ")] == ["·"]


def test_a_run_of_long_startup_is_not_called_all_compute_and_of_one_that_trains_nothing_nothing_is_said() -> (
    None
):
    phases = {"startup, import": 0.4, "forward": 0.3, "backward": 0.27, "other": 0.03}
    assert (
        verdict((), phases, SAMPLES)
        == "· 40 % of the time is startup and import; of the rest 95 % is forward, backward and "
        "optimizer"
    )
    assert verdict(
        (), {"startup, import": 0.15, "forward": 0.8, "other": 0.05}, SAMPLES
    ).startswith("✓ all compute: 94 %")
    for phases in (
        {"waiting": 0.9, "other": 0.1},
        {"startup, import": 1.0},
        {"forward": 0.09, "other": 0.91},
    ):
        assert verdict((), phases, SAMPLES) == ""
    assert verdict((), {"forward": 0.3, "other": 0.7}, SAMPLES).startswith(
        "· no warning, and 30 % of the training's time is forward"
    )


def test_of_too_few_samples_neither_compute_nor_a_loss_is_said() -> None:
    for phases in ({"forward": 1.0}, {"forward": 0.3, "other": 0.7}):
        assert verdict((), phases, 1) == "· too few samples for findings: 1 of 100"
        assert "too few" not in verdict((), phases, 100)
    assert verdict((), {"waiting": 1.0}, 1) == ""


NARROWED = [
    Selection(from_ns=STARTED_NS + 5 * SECOND_NS, main_threads=True),
    Selection(to_ns=STARTED_NS + 15 * SECOND_NS, main_threads=True),
    Selection(processes=frozenset({1}), main_threads=True),
    Selection(rank=0, main_threads=True),
]


def write_analyzed(path: Path) -> tuple[Finding, ...]:
    """Write a run that was analyzed as a whole, in words that no rule has.

    Return what was found.
    """
    plain = write_run(path.with_name("plain.profd"))
    with RunReader(plain) as reader:
        found = tuple(
            msgspec.structs.replace(one, title=f"as stored: {one.title}") for one in find(reader)
        )
        name = analysis_name()
    assert found
    write_run(path, also=[FindingsTaken(STARTED_NS, as_stored(found), name)])
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "a.profd"
    write_analyzed(path)
    return path


@contextlib.contextmanager
def reading(path: Path) -> Iterator[tuple[RunReader, PhaseIndex]]:
    with RunReader(path) as reader:
        yield reader, PhaseIndex(reader)


def change(path: Path, sql: str, *values: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount > 0


def test_a_run_that_was_analyzed_as_a_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.profd"
    found = write_analyzed(path)
    with reading(path) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == found
        assert summarize(reader).findings == found


@pytest.mark.parametrize("selection", NARROWED)
def test_a_part_of_it_is_looked_at_anew(run: Path, selection: Selection) -> None:
    with reading(run) as (reader, phases):
        assert findings_in(reader, selection, phases) == find(reader, selection, phases)


def test_a_run_that_was_killed_is_looked_at_and_that_nothing_was_found_is_known(
    tmp_path: Path,
) -> None:
    with reading(write_run(tmp_path / "a.profd")) as (reader, phases):
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader) != ()
        name = analysis_name()
    with reading(write_run(tmp_path / "b.profd", also=[FindingsTaken(STARTED_NS, (), name)])) as (
        reader,
        phases,
    ):
        assert findings_in(reader, MAIN_THREADS, phases) == ()


@pytest.mark.parametrize(
    ("table", "own"),
    [
        ("phases.toml", '[[rule]]\nphase = "loss"\nfunction = ["none"]\n'),
        (
            "overhead.toml",
            '[[kind]]\nwhat = "it"\ninstead = "asking"\nremedy = "Ask."\nfunction = ["none"]\n',
        ),
    ],
)
def test_findings_of_another_version_or_by_other_tables_are_looked_for_anew(
    run: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch, table: str, own: str
) -> None:
    with reading(run) as (reader, phases):
        name = analysis_name()
        monkeypatch.setattr(daemon, "VERSION", "9.9")
        assert analysis_name() != name
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader)
    monkeypatch.undo()
    monkeypatch.setenv("PROFD_HOME", str(profd_home))
    profd_home.mkdir(exist_ok=True)
    (profd_home / table).write_text(own)
    with reading(run) as (reader, phases):
        assert analysis_name() != name
        assert findings_in(reader, MAIN_THREADS, phases) == find(reader)


def test_what_slows_a_live_run_now_is_ranked(tmp_path: Path) -> None:
    with live_run(tmp_path / "a.profd", seconds=20) as run:
        taken = look(run.path)
        mild, grave = (
            msgspec.json.decode(taken.findings[0].report, type=Finding) for _ in range(2)
        )
        mild = msgspec.structs.replace(mild, rule="mild", severity=INFO)
        assert grave.severity == CRITICAL
        run.writer.put(FindingsTaken(taken.at_ns, as_stored((mild, grave))))
        run.advance()
        with RunReader(run.path) as reader:
            assert present_findings(reader) == (grave, mild)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("$.severity", "grim"),
        ("$.severity", "critical\n"),
        ("$.evidence.from_ns", -1),
        ("$.evidence.to_ns", 1 << 63),
        ("$.evidence.line.line", (1 << 64) - 1),
        ("$.evidence.measures[0].value", 1e308),
        ("$.gain_bound", 1e308),
        ("$.title", 7),
    ],
)
def test_a_hostile_report_is_refused(run: Path, place: str, value: object) -> None:
    change(
        run,
        f"UPDATE finding SET report = json_set(report, '{place}', json(?))",
        msgspec.json.encode(value).decode(),
    )
    with reading(run) as (reader, phases), pytest.raises(RunUnreadable):
        findings_in(reader, MAIN_THREADS, phases)


def test_a_remark_on_a_line_comes_before_a_symptom_with_a_lower_bound(case: Case) -> None:
    (found,) = case.findings(step((LOAD_IN_PROCESS, 40)))
    symptom = msgspec.structs.replace(
        found, rule="allocator-churn", title="churn", severity=WARNING, gain_bound=1.4
    )
    for bound, order in ((2.5, ["a remark", "churn"]), (1.2, ["churn", "a remark"])):
        remark = msgspec.structs.replace(found, rule="x", title="a remark", gain_bound=bound)
        assert [one.title for one in ranked((symptom, remark))] == order
