"""Steps, from recorded bytes of py-spy to the summary, against the diaries of the programs."""

from __future__ import annotations

from pathlib import Path

from support.expectations import check_results, check_truth, for_each, names_with
from support.recordinglines import PySpyDump, read_lines
from support.recordings import recording_file, recording_names, replay

from profd.daemon.store.reader import RunReader

WITHOUT_STEPS = ("steps-none", "steps-retries")


@for_each(recording_names())
def test_steps_are_those_expected(name: str) -> None:
    check_results(name, "steps")


@for_each(WITHOUT_STEPS)
def test_a_program_that_does_not_step_has_no_steps(name: str) -> None:
    assert check_results(name, "steps").results["steps"]["per_s"] is None


@for_each(names_with("rate"))
def test_the_rate_is_that_of_the_diary(name: str) -> None:
    check_truth(name, "rate")


@for_each(names_with("count"))
def test_the_count_is_that_of_the_diary(name: str) -> None:
    check_truth(name, "count")


@for_each(names_with("rate"))
def test_the_error_that_is_said_holds_the_truth(name: str) -> None:
    found = check_results(name, "steps")
    steps, errors = found.results["steps"], found.errors
    assert errors["rate"] / (1 - errors["rate"]) * steps["per_s"] <= steps["per_s_error"]
    assert errors.get("count", 0.0) <= steps["count_error"] + 1


def test_of_all_variables_only_the_counter_is_in_the_file(tmp_path: Path) -> None:
    others = (b"batch_size", b"steps_trained_in_current_epoch", b"epochs_trained")
    dumps = [line.said.encode() for line in read_lines(recording_file("steps-trainer")) if isinstance(line, PySpyDump)]
    assert all(any(name in dump for dump in dumps) for name in others)
    replay("steps-trainer", tmp_path / "run.profd")
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    with RunReader(tmp_path / "run.profd") as reader:
        assert len([event for event in reader.events() if event.kind == "counter"]) == 1
        for source in {frame.source for frame in reader.frames.values() if frame.source}:
            content = content.replace(source.encode(), b"")  # lines of source name variables, of course
    assert not any(name in content for name in others)
