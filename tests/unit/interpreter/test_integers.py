"""Variables of running Pythons, of each version that is here, against the values that these
programs give them.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator

import pytest
from support.interpreters import VERSIONS, Program, python, standing

from profd.daemon.interpreter.frames import Code
from profd.daemon.interpreter.integers import WALKS, IntegerReader, local_integer
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.objects import Missing

COUNTING = """
iter_num = 0
def train(captured_argument):
    step, zero, negative = 5000, 0, -12345
    captured = 100
    large, huge = (1 << 70) + 3, 1 << 200
    flag, real, text, array = True, 1.5, "12", [1]
    def inner():
        return captured, captured_argument
    if step < 0:
        unbound = 1
    while True:
        ready()
        step += 7
        captured += 7
        captured_argument += 1
        globals()["iter_num"] += 1000
        for number in range(step // 100):
            globals()["name%d" % number] = number

def short():
    passing = 77
    ready()

short()
train(1)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_each_reading_is_the_value_that_the_program_has(version: str) -> None:
    with standing(COUNTING, python(version)) as running:
        program = Program(running)
        passing = program.local("short", "passing")
        assert program.reader.read(passing) == 77
        running.go_on()
        with pytest.raises(Missing, match="not on the stack"):
            program.reader.read(passing)
        local, read = program.local, program.reader.read
        step, captured, argument = (
            local("train", name) for name in ("step", "captured", "captured_argument")
        )
        iter_num = program.of_module("iter_num")
        for turn in range(
            30
        ):  # meanwhile the module's dictionary grows from a dozen names to fifty and more
            counts = (read(step), read(captured), read(argument), read(iter_num))
            assert counts == (5000 + 7 * turn, 100 + 7 * turn, 1 + turn, 1000 * turn)
            running.go_on()
        assert read(local("train", "zero")) == 0
        assert read(local("train", "negative")) == -12345
        assert read(local("train", "large")) == (1 << 70) + 3
        assert read(program.of_module("name49")) == 49


@pytest.mark.parametrize("version", VERSIONS)
def test_one_variable_of_a_function_is_read_by_its_name(version: str) -> None:
    with standing(COUNTING, python(version)) as running:
        running.go_on()
        assert local_integer(running.pid, is_train, "step") == 5000
        assert local_integer(running.pid, lambda code: code.name == "main", "step") is None
        for name in ("other", "text"):
            assert local_integer(running.pid, is_train, name) is None


def test_a_process_without_a_python_has_no_variables() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert local_integer(process.pid, is_train, "step") is None


def is_train(code: Code) -> bool:
    return code.name == "train" and code.file == "<string>"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_int_has_no_value(version: str) -> None:
    with standing(COUNTING, python(version)) as running:
        running.go_on()
        program = Program(running)
        for name in ("flag", "real", "text", "array"):
            with pytest.raises(Missing, match="no int"):
                program.reader.read(program.local("train", name))
        with pytest.raises(Missing, match="larger"):
            program.reader.read(program.local("train", "huge"))
        with pytest.raises(Missing, match="no value"):
            program.reader.read(program.local("train", "unbound"))
        with pytest.raises(Missing, match="no variable of this name"):
            program.reader.read(program.of_module("nothing"))


def test_a_function_that_some_walks_of_the_stack_lack_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with standing(COUNTING) as running:
        running.go_on()
        program = Program(running)
        step = program.local("train", "step")
        walk, walks = program.python.frames, itertools.count()

        def torn(thread: int) -> Iterator[tuple[int, int]]:
            return walk(thread) if next(walks) % WALKS == WALKS - 1 else iter(())

        monkeypatch.setattr(program.python, "frames", torn)
        assert program.reader.read(step) == 5000
        monkeypatch.setattr(program.python, "frames", lambda _thread: iter(()))
        with pytest.raises(Missing, match="not on the stack"):
            IntegerReader(program.python, program.thread).read(step)


EPOCHS = """
import threading
def epoch(first):
    for step in range(first, first + 2):
        ready()
for number in (10, 20):
    thread = threading.Thread(target=epoch, args=(number,))
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_is_read_of_each_thread_that_calls_its_function(version: str) -> None:
    with standing(EPOCHS, python(version)) as running:
        program = Program(running)
        main, (python_, reader) = program.thread, (program.python, program.reader)
        program.thread = next(one for one in python_.threads() if one != main)
        step, read = program.local("epoch", "step"), []
        for go_on in (*[running.go_on] * 3, running.end):
            read.append(reader.read(step))
            assert reader.thread != main
            go_on()
        assert read == [10, 11, 20, 21]


GOING = """
number, other = 500, 1
ready()
del number
ready()
number = 50
ready()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_of_a_module_may_go_and_come(version: str) -> None:
    with standing(GOING, python(version)) as running:
        program = Program(running)
        number, read = program.of_module("number"), program.reader.read
        assert read(number) == 500
        running.go_on()
        with pytest.raises(Missing, match=r"no value|no variable of this name"):
            read(number)
        running.go_on()
        assert read(number) == 50


def test_a_process_that_has_ended_is_unreadable() -> None:
    with standing(COUNTING) as running:
        program = Program(running)
        passing, iter_num = program.local("short", "passing"), program.of_module("iter_num")
        running.end()
        for variable in (passing, iter_num):
            with pytest.raises(Unreadable):
                program.reader.read(variable)
