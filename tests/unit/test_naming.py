from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.naming import (
    ending,
    exit_words,
    process_title,
    script,
    script_folder,
    script_name,
    signal_name,
    starts_script,
)


@pytest.mark.parametrize(
    ("command", "what", "name"),
    [
        ("python train.py --lr 1", "train.py", "train"),
        ("/usr/bin/python3 -u -X dev /home/ada/cifar/train.py other.py", "train.py", "train"),
        ("python -m app.train --config x.py", "app.train", "app.train"),
        ("python train.py -m 3", "train.py", "train"),
        ("torchrun --nproc-per-node 2 train.py", "train.py", "train"),
        ("python -m torch.distributed.run train.py", "train.py", "train"),
        ("python -m accelerate.commands.launch src/train.py", "train.py", "train"),
        ("torchrun -m app.train", "app.train", "app.train"),
        ("python -c pass", "python", "python"),
        ("/opt/bin/trainer --fast", "trainer", "trainer"),
        ("", "the target", "run"),
    ],
)
def test_a_command_and_its_run_are_called_after_the_script(
    command: str, what: str, name: str
) -> None:
    assert (script(command.split()), script_name(command.split())) == (what, name)


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (("python", "train.py"), "/work"),
        (("python", "-u", "src/train.py", "--out", "x"), "/work/src"),
        (("python", "../other/train.py"), "/other"),
        (("python", "/abs/train.py"), "/abs"),
        (("python", "-m", "app.train"), None),
    ],
)
def test_the_folder_of_the_script(command: tuple[str, ...], folder: str | None) -> None:
    assert script_folder(command, "/work") == (Path(folder) if folder else None)


def test_a_process_is_called_by_its_role_and_a_signal_by_its_name_or_number() -> None:
    assert process_title("worker", 2) == process_title("worker", 2, rank=1) == "worker 2"
    assert (process_title("main", None), process_title("main", None, rank=0)) == ("main", "rank 0")
    assert process_title("helper", None, rank=1) == "helper"
    assert (signal_name(9), signal_name(40), signal_name(None)) == ("SIGKILL", "signal 40", None)


def test_how_a_process_ended_is_said_as_far_as_it_is_known() -> None:
    words = (exit_words(0, None), exit_words(3, None), exit_words(None, "SIGKILL"))
    assert words == ("ended with 0", "ended with 3", "was ended by SIGKILL")
    assert exit_words(None, None) == "ended"
    assert exit_words(None, "SIGINT") == "was stopped by Ctrl-C (SIGINT)"
    assert exit_words(130, None) == "was stopped by Ctrl-C (exit code 130)"


def test_how_a_run_ended_is_what_ended_the_script_if_that_is_known() -> None:
    assert ending("ended", "target-exited", 3, None) == "ended with 3"
    assert ending("ended", "target-exited", None, "SIGSEGV") == "ended by SIGSEGV"
    assert ending("ended", "target-exited", None, "SIGINT") == "stopped by Ctrl-C (SIGINT)"
    assert ending("ended", "target-exited", None, None) == "ended"
    assert ending("ended", "stopped", None, None) == "recording stopped"
    assert ending("live", None, None, None) == "still running"


def test_a_profd_that_starts_another_command_is_told_from_one_that_does_not() -> None:
    assert starts_script(("python", "/venv/bin/profd", "run", "--", "python", "train.py"))
    assert not starts_script(("python", "/venv/bin/profd", "attach", "7"))
    assert not starts_script(("python", "train.py", "run"))
