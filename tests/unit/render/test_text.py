from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import synthetic

from profd.daemon.analyze.incidents import Hang
from profd.daemon.analyze.steps import Steps
from profd.daemon.render.plaintext import WIDTH, width
from profd.daemon.render.summary import Exit, Summary, summarize
from profd.daemon.render.text import closing_lines, summary_text
from profd.daemon.store.reader import RunReader

NEXTS = {"report": "profd report --open cifar", "dashboard": "profd view cifar"}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    with RunReader(synthetic.write_run(tmp_path / "a.profd")) as reader:
        return summarize(reader)


def test_closing_lines_say_where_the_time_went(summary: Summary) -> None:
    assert closing_lines(summary, NEXTS).splitlines() == [
        "profd  train.py ended with 0 after 20.0 s, ~40 steps at 2.00/s",
        "  phase                share   a step        where        line",
        "  D  data wait   40 % ± 0.9    197 ms  ███▎  train.py:58  for images, labels in…",
        "  F  forward     20 % ± 0.9    101 ms  █▋    train.py:61  logits = model(images)",
        "  B  backward    20 % ± 0.9    101 ms  █▋    train.py:63  loss.backward()",
        "  P  optimizer   10 % ± 1.2   50.6 ms  ▊     train.py:64  optimizer.step()",
        "  O  loss         6 % ± 0.9   30.3 ms  ▌     train.py:62  loss = criterion(logi…",
        "▲ input-bound: the main thread waits for data 39 % of the time (train.py:58):",
        "  having more workers speeds steps up by at most 1.9\N{MULTIPLICATION SIGN}",
        "2,000 samples over 100.0 % of the run · 0.5 % torn · profd cost 0.8 s of CPU",
        "report: profd report --open cifar",
        "dashboard: profd view cifar",
    ]


def test_a_run_that_hung_says_so_in_place_of_all_compute(summary: Summary) -> None:
    hang = Hang(1.0, 21.0, None, "requests", "no progress for 20 s", (), ())
    hung = msgspec.structs.replace(
        summary, phases={"forward": 1.0}, step=None, findings=(), hangs=(hang,)
    )
    assert (
        "\u25b2 no progress for 20 s; it did not go on" in closing_lines(hung, NEXTS).splitlines()
    )
    assert "all compute" in closing_lines(msgspec.structs.replace(hung, hangs=()), NEXTS)
    assert "all compute" not in summary_text(hung)
    assert "all compute" in summary_text(msgspec.structs.replace(hung, hangs=()))


def test_closing_lines_take_in_steps_what_counts_them_and_the_first_finding(
    summary: Summary,
) -> None:
    finding = msgspec.structs.replace(
        summary.findings[0], title="input-bound: both workers are 97 % busy"
    )
    lines = closing_lines(
        msgspec.structs.replace(
            summary, steps=Steps(20.1, 2480, "loop"), findings=(finding, finding)
        ),
        {"report": "out.html"},
    ).splitlines()
    assert lines[0].endswith("after 20.0 s, 2,480 steps at 20.1/s")
    assert lines.count("▲ input-bound: both workers are 97 % busy") == 1
    assert lines[-1] == "report: out.html"
    counted = Steps(20.13, 2480, "loop counter `i` in train (train.py:58)", 0.3)
    lines = summary_text(msgspec.structs.replace(summary, steps=counted)).splitlines()
    assert lines[2] == "steps by loop counter `i` in train (train.py:58), ± 0.300/s"
    partly = msgspec.structs.replace(
        counted, count=None, why_unknown="steps are not counted any more"
    )
    more = summary_text(msgspec.structs.replace(summary, steps=partly)).splitlines()
    assert more[2:4] == [lines[2], "steps are not counted any more"]
    assert not any(
        line.startswith("steps")
        for line in summary_text(msgspec.structs.replace(summary, steps=Steps())).splitlines()
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (Steps(20.13, 2480, "loop", 0.3, 1), "after 20.0 s, 2,480 steps at 20.1/s"),
        (Steps(20.13, 2480, "loop", 0.3, 2), "after 20.0 s, ~2,480 steps at 20.1/s"),
        (
            Steps(20.13, 2480, "loop", 0.3, 1, unseen=60),
            "after 20.0 s, at least 2,480 steps at 20.1/s",
        ),
        (Steps(20.13, 2480, "loop", 0.3, 1, unseen=40), "after 20.0 s, ~2,480 steps at 20.1/s"),
        (Steps(1530.4, 91_000, "loop", 1.0, 900), "after 20.0 s, ~91,000 steps at 1,530/s"),
        (Steps(0.034, 7, "loop", 0.0, 0), "after 20.0 s, 7 steps at 0.0340/s"),
        (Steps(20.13, None, "loop", 0.3, None, "not any more"), "after 20.0 s, 20.1/s steps"),
        (Steps(why_unknown="not any more"), "after 20.0 s"),
        (Steps(), "after 20.0 s"),
    ],
)
def test_steps_are_shown_as_exactly_as_they_are_known(
    summary: Summary, steps: Steps, said: str
) -> None:
    assert (
        closing_lines(msgspec.structs.replace(summary, steps=steps), NEXTS)
        .splitlines()[0]
        .endswith(said)
    )


@pytest.mark.parametrize(
    ("ended", "changes", "said"),
    [
        ((3, None), {}, "train.py ended with 3 after 20.0 s"),
        ((None, "SIGKILL"), {}, "train.py ended by SIGKILL after 20.0 s"),
        ((None, None), {}, "train.py ended after 20.0 s"),
        ((None, None), {"why_ended": "stopped"}, "train.py: recording stopped after 20.0 s"),
        (
            (None, None),
            {"state": "live", "why_ended": None},
            "train.py: still running after 20.0 s",
        ),
    ],
)
def test_the_first_line_says_how_the_run_ended(
    summary: Summary,
    ended: tuple[int | None, str | None],
    changes: dict[str, str | None],
    said: str,
) -> None:
    target = msgspec.structs.replace(summary.target, exit=Exit(*ended))
    changed = msgspec.structs.replace(summary, target=target, steps=Steps(), **changes)
    assert closing_lines(changed, NEXTS).splitlines()[0] == f"profd  {said}"


def test_texts_say_that_a_run_has_no_samples(summary: Summary) -> None:
    nothing = dict.fromkeys(("phase_lines", "functions", "processes", "findings"), ())
    why = "no samples were taken: py-spy gave no stack"
    changed: dict[str, Any] = {
        "samples": 0,
        "phases": {},
        "step": None,
        "coverage": None,
        "torn_share": None,
        "no_samples": why,
        **nothing,
    }
    empty = msgspec.structs.replace(summary, **changed)
    assert closing_lines(empty, NEXTS).splitlines()[1:3] == [
        f"▲ {why}",
        "no samples",
    ]
    assert summary_text(empty).splitlines()[-2:] == ["no samples", f"▲ {why}"]


def test_what_was_not_read_is_said_beside_the_samples(summary: Summary) -> None:
    texts = (
        "nothing was read from pid 5 for 7 s: it is too deep",
        "nothing was read from pid 6 for 9 s: unknown why",
    )
    partly = msgspec.structs.replace(summary, unread=texts)
    assert f"▲ {texts[0]}" in closing_lines(partly, NEXTS).splitlines()
    assert not {f"▲ {text}" for text in texts} - set(summary_text(partly).splitlines())


def test_summary_shows_phases_functions_and_each_process(summary: Summary) -> None:
    lines = summary_text(summary).splitlines()
    assert lines[lines.index("Hot functions of the main thread") - 14 :][:13] == [
        "Phases of the main thread; a step takes 500 ms",
        "  phase                  share   a step        where        line",
        "  input wait       40 %          197 ms",
        "  D  data wait     40 % ± 0.9    197 ms  ███▎  train.py:58  for images, labels…",
        "  compute          56 %          283 ms",
        "  F  forward       20 % ± 0.9    101 ms  █▋    train.py:61  logits = model(imag…",
        "  O  loss           6 % ± 0.9   30.3 ms  ▌     train.py:62  loss = criterion(lo…",
        "  B  backward      20 % ± 0.9    101 ms  █▋    train.py:63  loss.backward()",
        "  P  optimizer     10 % ± 1.2   50.6 ms  ▊     train.py:64  optimizer.step()",
        "                                40.4 ms        train.py:64  optimizer.step()",
        "                                10.1 ms        train.py:60  optimizer.zero_grad…",
        "  residual          4 %         19.7 ms",
        "  S  synchronize    4 % ± 0.9   19.7 ms  ▍     train.py:65  running_loss += los…",
    ]
    plain = summary_text(msgspec.structs.replace(summary, step=None)).splitlines()
    assert "  phase                  share        where        line" in plain
    assert "  B  backward      20 % ± 0.9   █▋    train.py:63  loss.backward()" in plain
    wide = summary_text(summary, 120)
    assert "train.py:58  for images, labels in loader:" in wide
    assert "  40.0 % ± 0.9    40.0 %  Condition.wait        threading.py:331" in wide
    assert "  4243  worker 1  97 %  300 MB   80 %  elastic_deform  augment.py:12" in lines
    assert "  4244  worker 2  97 %  300 MB   80 %  elastic_deform  augment.py:12" in lines
    many = msgspec.structs.replace(summary, processes=summary.processes * 10)
    assert summary_text(many).splitlines()[-1] == "  and 18 more"
    # What was dropped is said below what the numbers rest on.
    assert "lost:" not in summary_text(summary)
    lost = msgspec.structs.replace(
        summary, losses=("3 records were dropped: the disk is \x1b[2Jtoo slow",)
    )
    before, after = summary_text(lost).split("lost: 3 records were dropped: the disk is ")
    assert before.splitlines()[-1].startswith("2,000 samples over ")
    assert "\x1b" not in after


def test_names_of_any_kind_fit_and_do_nothing_to_the_terminal(summary: Summary) -> None:
    evil = "\x1b[2J\r\n\u202e训练" * 20
    functions = tuple(
        msgspec.structs.replace(row, function=evil, module_path=evil, source=evil)
        for row in summary.functions
    )
    lines = tuple(
        msgspec.structs.replace(line, module_path=evil, source=evil) for line in summary.phase_lines
    )
    processes = tuple(
        msgspec.structs.replace(row, functions=functions) for row in summary.processes
    )
    target = msgspec.structs.replace(summary.target, command=(f"{evil}.py",))
    changed = msgspec.structs.replace(
        summary,
        run="\x07",
        functions=functions,
        phase_lines=lines,
        processes=processes,
        target=target,
    )
    shown = summary_text(changed).split("\n")
    closing = closing_lines(changed, NEXTS).split("\n")
    assert all(line.isprintable() for line in shown + closing)
    assert max(map(width, shown + closing[:-2])) <= WIDTH
    assert len(shown) == len(summary_text(summary).splitlines())
