"""What was planted in a data set is named first, with its size.

Where nothing was, nothing is named.
"""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import msgspec
import pytest
from fleet.fleetgen import Truth
from support.fleets import PLAN, asked, make
from support.present import there

from profd.daemon.fleet.answers import Fleet
from profd.daemon.fleet.fleet import Question

HOUR_NS = 3600 * 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def truth(folder: Path) -> Truth:
    return make(folder)


@pytest.fixture(scope="module")
def fleet(folder: Path, truth: Truth) -> Fleet:
    return asked(folder)


def test_the_planted_cause_node_and_regression_are_named(fleet: Fleet, truth: Truth) -> None:
    assert (fleet.samples, fleet.runs, fleet.jobs, fleet.nodes) == (
        truth.rows,
        truth.runs,
        PLAN.jobs,
        PLAN.nodes,
    )
    assert truth.rows == pytest.approx(PLAN.rows, rel=0.05)
    stated = {one.phase: round(one.hours.gpus_idle * HOUR_NS) for one in fleet.phases}
    assert stated == {phase: truth.gpu_idle_ns[phase] for phase in stated}
    assert sum(stated.values()) == sum(
        idle for phase, idle in truth.gpu_idle_ns.items() if phase in stated
    )
    assert fleet.phases[0].phase == truth.cause
    assert (fleet.functions[0].phase, fleet.functions[0].jobs) == (truth.cause, PLAN.jobs)
    assert fleet.leaves[0].function == "Condition.wait"
    assert [one.node for one in fleet.slow_nodes] == [truth.slow_node]
    assert fleet.slow_nodes[0].low < PLAN.slow < fleet.slow_nodes[0].high
    assert fleet.nodes_compared == PLAN.nodes


def test_the_planted_regression_is_named_alone_with_its_phase_and_findings_add_up(
    fleet: Fleet, truth: Truth
) -> None:
    (finding,) = fleet.findings
    assert (finding.jobs, finding.runs) == (PLAN.jobs, truth.runs)
    assert finding.gpus_lost_at_most == pytest.approx(fleet.hours.gpus / 2)


def test_noise_gives_no_slow_node(tmp_path: Path) -> None:
    make(tmp_path, msgspec.structs.replace(PLAN, quiet=True, seed=1, rows=8000))
    fleet = asked(tmp_path)
    assert (fleet.slow_nodes, fleet.nodes_compared) == ((), PLAN.nodes)


def test_little_memory_gives_the_same_answers(fleet: Fleet, folder: Path) -> None:
    assert asked(folder, Question(memory_bytes=100_000_000)) == fleet


def test_a_time_before_the_last_week_has_fewer_runs(folder: Path, fleet: Fleet) -> None:
    until_ns = 1_794_182_400 * 10**9  # eight days before the newest run
    assert 0 < asked(folder, Question(until_ns=until_ns)).runs < fleet.runs


def test_what_the_documentation_asks_by_sql_has_answers(folder: Path, fleet: Fleet) -> None:
    text = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    by_phase, by_week = (
        there(duckdb.sql(sql.replace("URL", str(folder / "fleet")))).fetchall()
        for sql in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    )
    assert sum(hours for *_, hours in by_phase) == pytest.approx(fleet.hours.ranks)
    assert len(by_week) >= fleet.jobs
    assert all(0.01 < step_s < 10 for *_, step_s in by_week)
