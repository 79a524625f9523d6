"""What a process is there for, from its words and its stacks."""

from __future__ import annotations

import pytest
from support.training_stacks import CONV, DEFORM, PIN_MEMORY

from profd.daemon.store.records import Frame
from profd.daemon.tree import roles

PYTHON = "/opt/venv/bin/python3"
TRAIN = (PYTHON, "train.py", "--epochs", "2")


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"),
        (PYTHON, "torchrun", "train.py"),
        (PYTHON, "-u", "/opt/venv/bin/accelerate", "launch", "train.py"),
        (PYTHON, "/opt/venv/bin/deepspeed", "train.py"),
        (PYTHON, "-m", "torch.distributed.run", "train.py"),
        (PYTHON, "-X", "dev", "-W", "ignore", "-m", "torch.distributed.launch", "train.py"),
        (PYTHON, "-m", "accelerate.commands.launch", "train.py"),
    ],
)
def test_launchers_start_others(words: tuple[str, ...]) -> None:
    assert roles.role_of(words, True, None) == roles.LAUNCHER


@pytest.mark.parametrize(
    "words",
    [
        TRAIN,
        (PYTHON, "train.py", "--output", "/runs/accelerate", "--mode", "torchrun"),
        (PYTHON, "train.py", "-m", "torch.distributed.run"),
        (PYTHON, "-m", "accelerated_training"),
        (PYTHON, "-X", "torchrun", "train.py"),
        (PYTHON, "-c", "import train"),
        (PYTHON, "-c", "torchrun"),
        (PYTHON, "-m"),
        (PYTHON, "-X"),
        (PYTHON,),
        (),
    ],
)
@pytest.mark.parametrize("parent", [None, roles.LAUNCHER])
def test_what_a_launcher_starts_trains(words: tuple[str, ...], parent: str | None) -> None:
    assert roles.role_of(words, True, parent) == roles.MAIN


@pytest.mark.parametrize("parent", [None, roles.LAUNCHER])
def test_a_shell_on_the_way_to_the_training_launches(parent: str | None) -> None:
    assert roles.role_of(("bash", "train.sh"), False, parent) == roles.LAUNCHER


@pytest.mark.parametrize("parent", [roles.MAIN, roles.WORKER, roles.HELPER])
@pytest.mark.parametrize("is_python", [True, False])
def test_what_the_training_starts_helps_until_its_stacks_say_more(parent: str, is_python: bool) -> None:
    assert roles.role_of(TRAIN, is_python, parent) == roles.HELPER


@pytest.mark.parametrize(
    "code",
    [
        "from multiprocessing.resource_tracker import main;main(5)",
        "from multiprocessing.forkserver import main; main(3)",
        "from torch._inductor.compile_worker.__main__ import main",
    ],
)
@pytest.mark.parametrize("parent", [None, roles.LAUNCHER, roles.MAIN])
def test_helpers_of_the_library_never_train(code: str, parent: str | None) -> None:
    assert roles.role_of((PYTHON, "-c", code), True, parent) == roles.HELPER


def test_the_loop_of_a_data_loader_makes_a_worker() -> None:
    assert roles.is_worker([CONV, DEFORM])
    assert not roles.is_worker([CONV, PIN_MEMORY])
    assert not roles.is_worker([])
    assert not roles.is_worker([()])


def test_a_function_of_the_same_name_elsewhere_makes_no_worker() -> None:
    assert not roles.is_worker([[Frame("worker", "/home/ada/train.py", 3)]])
    assert roles.is_worker([[Frame("worker", "/usr/lib/python3.11/multiprocessing/pool.py", 125)]])


def test_ordinals_of_the_dead_are_given_again() -> None:
    assert roles.next_ordinal([]) == 1
    assert roles.next_ordinal([None, 1, 3]) == 2
    assert roles.next_ordinal([1, 2]) == 3
