"""What leaves a reading of a stack's variables: plain integers with their names, and nothing else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon.clock import AnchoredClock
from profd.daemon.collect.steps.counter import (
    Answer,
    CounterUnread,
    LoopCounters,
    Place,
    integers_of,
    main_stack,
    read_counter,
)

PID = 4242
SECRET = '"hunter2"'
ANY_REPR = st.none() | st.text() | st.integers().map(str) | st.floats().map(str)


def variable(name: str, shown: str | None) -> dict[str, object]:
    return {"name": name, "addr": 1, "arg": False, "repr": shown}


def frame(name: str, *variables: dict[str, object], line: int = 7) -> dict[str, object]:
    file = f"/home/ada/{name}.py"
    return {"name": name, "filename": file, "short_filename": f"{name}.py", "line": line, "locals": list(variables)}


def thread(*frames: dict[str, object], os_tid: int | None = PID, name: str | None = "MainThread") -> dict[str, object]:
    return {"pid": PID, "thread_id": 9, "thread_name": name, "os_thread_id": os_tid, "frames": list(frames)}


def said(*threads: dict[str, object]) -> bytes:
    return json.dumps(threads, ensure_ascii=False).encode()


def test_integers_of_the_main_thread_are_kept_outermost_first() -> None:
    main = thread(frame("step", variable("layer", "3")), frame("train", variable("i", "15021"), line=58))
    found = integers_of(main_stack(said(thread(frame("other"), os_tid=1, name="Thread-1"), main), PID))
    assert [(shown.place, shown.line, shown.integers) for shown in found] == [
        (Place(0, "train", "train.py"), 58, {"i": 15021}),
        (Place(1, "step", "step.py"), 7, {"layer": 3}),
    ]


def test_a_frame_says_by_which_of_its_integers_its_source_counts() -> None:
    asked = []

    def counters_at(file: str, function: str, line: int) -> LoopCounters:
        asked.append((Path(file).name, function, line))
        return LoopCounters(frozenset({"i", "n", "batch"}), frozenset({"i", "batch"}))

    main = thread(frame("train", variable("i", "5"), variable("n", "9"), variable("batch", "<Tensor>"), line=58))
    (found,) = integers_of(main_stack(said(main), PID), counters_at)
    assert found.counters == {"i", "n"}
    assert found.current == {"i"}
    assert asked == [("train.py", "train", 58)]


@pytest.mark.parametrize(
    "shown",
    [SECRET, '"42"', "True", "None", "4.0", "[1, 2]", "{1: 2}", "<Net at 0x7f>", "+bigint", "?", "", None, "1" * 19],
)
def test_what_is_no_plain_integer_is_dropped(shown: str | None) -> None:
    found = integers_of(main_stack(said(thread(frame("train", variable("token", shown), variable("i", "-5")))), PID))
    assert [dict(kept.integers) for kept in found] == [{"i": -5}]


@given(st.dictionaries(st.text(min_size=1), ANY_REPR))
def test_nothing_but_integers_leaves_whatever_a_program_holds(variables: dict[str, str | None]) -> None:
    shown = [variable(name, value) for name, value in variables.items()]
    found = integers_of(main_stack(said(thread(frame("train", *shown))), PID))
    kept = dict(found[0].integers) if found else {}
    integers = {name: value for name, value in variables.items() if value and value.isascii() and _is_plain(value)}
    assert kept == {name: int(value) for name, value in integers.items()}


def _is_plain(value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isdigit() and len(digits) <= 18


@pytest.mark.parametrize(
    "answer", [b"", b"[", b"{}", b"[{}]", b"[]", said(thread()), said(thread(name=None, os_tid=1))]
)
def test_an_answer_without_a_whole_main_thread_is_none(answer: bytes) -> None:
    assert main_stack(answer, PID) == []


@pytest.mark.parametrize(("file", "is_importing"), [("<frozen importlib._bootstrap>", True), ("train.py", False)])
def test_an_import_is_noticed(tmp_path: Path, file: str, is_importing: bool) -> None:
    stack = thread(frame("_find_and_load"), frame("train", variable("i", "3")))
    (tmp_path / "answer").write_bytes(said(stack).replace(b"/home/ada/_find_and_load.py", file.encode()))
    reading = read_counter(str(fake_py_spy(tmp_path, f"cat {tmp_path}/answer")), PID, AnchoredClock())
    assert reading.is_importing == is_importing


def test_py_spy_is_asked_once_more_where_it_fails(tmp_path: Path) -> None:
    script = fake_py_spy(tmp_path, "exit 1")
    with pytest.raises(CounterUnread) as failed:
        read_counter(str(script), PID, AnchoredClock())
    assert (tmp_path / "asked").read_text() == "dump --nonblocking --json --locals --pid 4242\n" * 2
    assert SECRET not in str(failed.value)


def test_what_py_spy_says_as_it_fails_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(said(thread(frame("train", variable("i", "3")))))
    with pytest.raises(CounterUnread):
        read_counter(str(fake_py_spy(tmp_path, f"cat {tmp_path}/answer; exit 1")), PID, AnchoredClock())


def test_a_reading_lies_between_the_start_of_py_spy_and_its_first_word(tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(said(thread(frame("train", variable("i", "3")))))
    script = fake_py_spy(tmp_path, f"cat {tmp_path}/answer")
    clock = AnchoredClock()
    before_ns = clock.now_ns()
    reading = read_counter(str(script), PID, clock)
    assert before_ns <= reading.at_ns - reading.error_ns
    assert reading.at_ns + reading.error_ns <= clock.now_ns()
    assert reading.cpu_ns > 0
    assert [dict(shown.integers) for shown in reading.frames] == [{"i": 3}]


def fake_py_spy(folder: Path, ending: str) -> Path:
    script = folder / "py-spy"
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{ending}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert os.access(script, os.X_OK)
    return script


def test_what_a_reading_cost_is_what_all_tries_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        Answer(b"", 0, 0, 7_000, 0.0),
        Answer(said(thread(frame("train", variable("i", "3")))), 0, 0, 5_000, 0.0),
    ]
    monkeypatch.setattr("profd.daemon.collect.steps.counter.ask", lambda *_: answers.pop(0))
    assert read_counter("py-spy", PID, AnchoredClock()).cpu_ns == 12_000
    answers += [Answer(b"", 0, 0, 7_000, 0.0), Answer(b"", 0, 0, 8_000, 0.0)]
    with pytest.raises(CounterUnread) as unread:
        read_counter("py-spy", PID, AnchoredClock())
    assert unread.value.cpu_ns == 15_000
