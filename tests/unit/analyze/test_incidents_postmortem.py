"""How a target died, from what the file has of its last minute."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.present import there
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, main_process, recording, write_records
from support.training_stacks import CONV, LOSS

from profd.daemon.analyze.incidents import PostMortem, take_post_mortem
from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.render.plaintext import WIDTH, joined
from profd.daemon.render.sections import post_mortem_lines, post_mortem_sentence
from profd.daemon.render.summary import summarize
from profd.daemon.render.text import summary_text
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import (
    EventHappened,
    Frame,
    OutputWritten,
    Point,
    PointsTaken,
    Record,
    RunEnded,
)

END_NS = STARTED_NS + 2 * SECOND_NS
OOM = EventHappened(
    END_NS, EventKind.OOM, "out of memory: the kernel ended a process of the control group /job"
)
SAID = OutputWritten(
    END_NS, b"step 1\rstep 2\r\nTraceback:\r\n  x\r\nRuntimeError: bad \x1b[1m\xff\r\n"
)


def run(path: Path, *more: Record) -> Path:
    stacks = [(MAIN_TID, "MainThread", True, [(CONV, 400), (LOSS, 600)])]
    points = PointsTaken(STARTED_NS + SECOND_NS, (Point("rss_bytes", 3 << 30, MAIN),))
    return write_records(path, [main_process(), recording(MAIN, STARTED_NS, stacks), points, *more])


def post_mortem(path: Path) -> PostMortem:
    with RunReader(path) as reader:
        return there(take_post_mortem(reader))


@pytest.mark.parametrize(
    "ended",
    [
        RunEnded(END_NS, "target-exited", 0),
        RunEnded(END_NS, "stopped"),
        RunEnded(END_NS, "target-exited", None, signal.SIGINT),
        RunEnded(END_NS, "target-exited", 128 + signal.SIGINT),
    ],
)
def test_a_target_that_ended_well_or_by_its_user_or_runs_on_has_no_post_mortem(
    tmp_path: Path, ended: RunEnded
) -> None:
    with RunReader(run(tmp_path / "run", ended)) as reader:
        assert take_post_mortem(reader) is None


def test_a_signal_is_named_with_the_last_stack_and_memory(tmp_path: Path) -> None:
    gone = PointsTaken(END_NS, (Point("rss_bytes", 0.0, MAIN),))  # what was resident before counts
    found = post_mortem(
        run(tmp_path / "run", gone, RunEnded(END_NS, "target-exited", None, signal.SIGSEGV))
    )
    assert (found.signal, found.code, found.out_of_memory) == ("SIGSEGV", None, None)
    assert (found.rss_bytes, found.memory[0]) == (3 << 30, (1.0, 3 << 30))
    (last,) = found.last
    assert last.before_end_s == pytest.approx(1.0, abs=0.1)
    sentence = post_mortem_sentence(found)
    assert sentence.startswith("the target was ended by SIGSEGV, last seen in ")
    assert sentence.endswith("with 3.2 GB resident")


def test_the_last_line_is_one_of_the_script_where_python_then_took_time_to_end(
    tmp_path: Path,
) -> None:
    at_exit = (Frame("finalize._exitfunc", "/usr/lib/python3.11/weakref.py", 666),)
    ending = recording(
        MAIN, STARTED_NS + SECOND_NS, [(MAIN_TID, "MainThread", True, [(at_exit, 900)])]
    )
    ended = RunEnded(END_NS, "target-exited", 1)
    (last,) = post_mortem(run(tmp_path / "run", ending, ended)).last
    (before,) = post_mortem(run(tmp_path / "before", ended)).last
    assert last.place == before.place
    assert last.before_end_s == pytest.approx(1.0, abs=0.1)
    assert "last seen in " in post_mortem_sentence(post_mortem(tmp_path / "run"))
    late = post_mortem(
        run(tmp_path / "late", RunEnded(STARTED_NS + 31 * SECOND_NS, "target-exited", 1))
    )
    assert "last seen 30.0 s before the end in " in post_mortem_sentence(late)
    stacks = [(MAIN_TID, "MainThread", True, [(at_exit, 900)])]
    alone = write_records(
        tmp_path / "alone", [main_process(), recording(MAIN, STARTED_NS, stacks), ended]
    )
    assert [place.place for place in post_mortem(alone).last] == [
        "finalize._exitfunc (weakref.py:666)"
    ]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            (OOM, RunEnded(END_NS, "target-exited", None, 9)),
            "out of memory: the kernel ended a process of",
        ),
        ((), "profd was ended before its target, or with it, last seen in "),
    ],
)
def test_out_of_memory_and_the_end_of_profd_are_named(
    tmp_path: Path, more: tuple[Record, ...], sentence: str
) -> None:
    found = post_mortem(run(tmp_path / "run", *more))
    assert post_mortem_sentence(found).startswith(sentence)
    assert found.last


def test_the_post_mortem_has_the_last_error_and_the_last_lines(tmp_path: Path) -> None:
    path = run(tmp_path / "run", SAID, RunEnded(END_NS, "target-exited", 1))
    found = post_mortem(path)
    assert found.output[:2] == ("step 2", "Traceback:")
    assert post_mortem_sentence(found).endswith("; RuntimeError: bad \\x1b[1m\ufffd")
    lines = joined(post_mortem_lines(found), WIDTH).splitlines()
    assert lines[-1] == "  │ RuntimeError: bad \\x1b[1m\ufffd"
    assert lines[0].startswith("  the target ended with 1")
    with RunReader(path) as reader:
        text = summary_text(summarize(reader))
    assert text.index("How it ended") < text.index("Phases of the main thread")


FULL = (
    b"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    b"total capacity of 47.53 GiB of which 1.00 GiB is free. Of the allocated memory 46.00 GiB is "
    b"allocated by PyTorch, and 8.00 MiB is reserved by PyTorch but unallocated.\n"
)
LAUNCHER = (
    b"  a frame\n" * 30
    + b"torch.distributed.elastic.errors.ChildFailedError: \n"
    + b"train.py FAILED\n" * 20
)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (FULL, "GPU 1 is full: 2.1 GB asked for; 1.1 GB free; tensors hold 49 GB"),
        (FULL + LAUNCHER, "GPU 1 is full: 2.1 GB asked for"),
        (FULL + b"ValueError: no batch size fits\n", "the target ended with 1"),
    ],
)
def test_a_gpu_that_was_full_is_the_cause_unless_another_error_followed(
    tmp_path: Path, output: bytes, said: str
) -> None:
    path = run(
        tmp_path / "run",
        OutputWritten(END_NS - 1, output),
        RunEnded(END_NS, "target-exited", 1),
    )
    found = post_mortem(path)
    assert post_mortem_sentence(found).startswith(said)
    assert len(found.output) <= 20


def test_the_last_error_is_shown_without_secrets(tmp_path: Path) -> None:
    said = OutputWritten(
        END_NS - 1, b"ValueError: https://ada:hunter2@host refused api_key='hunter2\n"
    )
    found = post_mortem(run(tmp_path / "run", said, RunEnded(END_NS, "target-exited", 1)))
    assert found.error == "ValueError: https://ada:***@host refused api_key=***"
