from __future__ import annotations

from classic import ON_CPU, ON_GPU, Result, result_of, rows, words_of
from gallery import NOTHING

from profd.daemon.findings.finding import INFO, WARNING


def test_each_stage_keeps_what_the_ones_before_improved() -> None:
    assert [words_of(stage, 3, 9600) for stage in ON_CPU] == [
        ["--steps=300", "--batch-size=32", "--workers=0", "--device=cpu"],
        ["--steps=300", "--batch-size=32", "--workers=3", "--device=cpu"],
        ["--steps=37", "--batch-size=256", "--workers=3", "--device=cpu"],
    ]
    assert [stage.device for stage in ON_GPU] == ["cpu", "cuda", "cuda", "cuda"]
    assert [stage.rule for stage in ON_GPU][:2] == ["gpu-unused", "input-bound-in-process"]


def test_what_is_found_first_says_how_many_workers() -> None:
    found = {
        "rule": "input-bound-in-process",
        "severity": WARNING,
        "gain_bound": 1.5,
        "evidence": {"measures": [{"value": 0.3, "unit": "share"}]},
        "remedy": "Give num_workers=2 to",
    }
    mild = {**found, "severity": INFO}

    assert result_of({"findings": [found], "steps": {"per_s": 2.0}}, 32) == Result(str(found["rule"]), 1.5, 2, 64.0)
    assert result_of({"findings": [mild], "steps": {"per_s": 2.0}}, 32) == Result(NOTHING, None, 2, 64.0)
    assert result_of({"findings": [], "steps": {"per_s": 2.0}}, 256) == Result(NOTHING, None, None, 512.0)


def test_the_gain_of_an_advice_is_what_the_next_stage_has_more() -> None:
    results = [
        Result("input-bound-in-process", 1.5, 1, 100.0),
        Result("unfused-optimizer", 1.3, None, 140.0),
        Result(NOTHING, None, None, 210.0),
    ]

    assert rows(ON_CPU, results) == [
        "| as it is | 100 | input-bound-in-process | yes | 1.50 | 1.40 |",
        "| with workers | 140 | unfused-optimizer | no: small-batches | 1.30 | 1.50 |",
        "| in batches of 256 | 210 | nothing | yes |  |  |",
    ]
