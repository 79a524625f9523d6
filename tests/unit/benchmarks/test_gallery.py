from __future__ import annotations

from gallery import GALLERY, NOTHING, PLANTED, Outcome, Pair, confusion, outcome, row

from profd.daemon.findings.finding import INFO, WARNING

LOADING = Outcome("input-bound-in-process", 2.0, 10.0, 0.4)
EVIDENCE = {"measures": [{"value": 0.15, "unit": "share"}, {"value": 2.0, "unit": "share"}]}


def test_the_gain_is_held_against_the_bound_and_what_is_mistaken_is_counted() -> None:
    assert sorted(PLANTED) == sorted(file.stem for file in GALLERY.glob("[!_]*.py"))
    within, beyond, hardly = (Outcome(NOTHING, None, per_s) for per_s in (18.0, 21.0, 9.0))

    assert row("load_in_process", [Pair(LOADING, within)]).endswith(
        "| 1 of 1 | 1 of 1 | 1.80 | 2.00 | 1 of 1 | 1 of 1 | 0.93 |"
    )
    assert row("load_in_process", [Pair(LOADING, beyond)]).endswith("| 2.10 | 2.00 | 0 of 1 | 1 of 1 | 0.79 |")
    assert row("load_in_process", [Pair(LOADING, hardly)]).endswith("| 0.90 | 2.00 | 1 of 1 | 0 of 1 | 1.85 |")
    wrong, healthy = Outcome("hot-function", 1.5, 10.0), Outcome(NOTHING, None, 18.0)
    lines = confusion({"load_in_process": [Pair(LOADING, healthy), Pair(wrong, healthy)]})

    assert lines[0] == "| planted | input-bound-in-process | hot-function | nothing |"
    assert lines[2] == "| input-bound-in-process | 1 | 1 |  |"
    assert lines[3] == "| (healthy twins) |  |  | 2 |"


def test_what_is_only_worth_knowing_is_no_diagnosis() -> None:
    info = {"rule": "a", "severity": INFO, "gain_bound": 1.1, "evidence": EVIDENCE}
    warned = {"rule": "b", "severity": WARNING, "gain_bound": 1.2, "evidence": EVIDENCE}
    counted = {**warned, "evidence": {"measures": [{"value": 3.0, "unit": "cores"}]}}

    assert outcome([info], 3.0) == Outcome(NOTHING, None, 3.0)
    assert outcome([info, warned], 3.0) == Outcome("b", 1.2, 3.0, 0.15)
    assert outcome([counted], 3.0) == Outcome("b", 1.2, 3.0)
