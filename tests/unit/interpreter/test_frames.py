"""Frames of running Pythons, of each version that is here, against what these programs are."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.interpreters import VERSIONS, python, standing

from profd.daemon import processes
from profd.daemon.interpreter import frames
from profd.daemon.interpreter.frames import count_threads, open_interpreter
from profd.daemon.interpreter.memory import Memory, Unreadable

NESTED = """
import threading
def naïve(first, second):
    def inner():
        print("ready", flush=True)
        return input() or second
    third = inner()
    for n in range(10):
        pass
    return third
class Trainer:
    def fit(self, 価格=1):
        naïve(1, 2)
def other():
    threading.Event().wait()
threading.Thread(target=other, daemon=True).start()
Trainer().fit()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_main_threads_stack_is_that_of_the_program(version: str) -> None:
    with standing(NESTED, python(version)) as program:
        interpreter = open_interpreter(program.pid)
        assert interpreter.version == tuple(map(int, version.split(".")))
        stack = interpreter.stack(interpreter.main_thread())
        assert [(frame.code.name, frame.code.first_line) for frame in stack] == [
            ("inner", 4), ("naïve", 3), ("fit", 12), ("<module>", stack[-1].code.first_line),
        ]  # fmt: skip
        assert {frame.code.file for frame in stack} == {"<string>"}
        assert len({frame.globals for frame in stack}) == 1
        _, outer, fit, module = (frame.code.variables for frame in stack)
        assert set(outer) == {"first", "second", "inner", "third", "n"}
        assert fit == ("self", "価格")
        assert module == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_threads_of_a_program_are_counted(version: str) -> None:
    with standing(NESTED, python(version)) as program:
        assert count_threads(program.pid) == 2


def test_a_program_without_python_has_one_thread() -> None:
    with subprocess.Popen(["sleep", "60"]) as program:
        assert count_threads(program.pid) == 1
        program.kill()
    assert count_threads(program.pid) == 1


# As imports do: the code of a module is gone once it has run, and its place is used again.
IN_PLACE_OF_ANOTHER = """
def made(name, lines):
    scope = {}
    source = "\\n" * lines + "def " + name + "():\\n print('ready', flush=True)\\n input()"
    exec(compile(source, "/" + name + ".py", "exec"), scope)
    return scope.popitem()[1]
def stand(lines):
    function = made("first", lines)
    function()
    return id(function.__code__)
place = stand(7)
others = [made("other", 9)]
while id(others[-1].__code__) != place:
    others.append(made("other", 9))
others[-1]()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_code_in_the_place_of_another_one_is_not_taken_for_that(version: str) -> None:
    with standing(IN_PLACE_OF_ANOTHER, python(version)) as program:
        interpreter = open_interpreter(program.pid)
        first = interpreter.stack(interpreter.main_thread())[0].code
        program.go_on()
        other = interpreter.stack(interpreter.main_thread())[0].code
    assert first.address == other.address
    found = [(code.name, code.file, code.first_line) for code in (first, other)]
    assert found == [("first", "/first.py", 8), ("other", "/other.py", 10)]


# Functions that call each other, each with ``many`` variables whose names are new and ``length``
# characters long.
LONG_NAMES = """
def chain(many, length, depth):
    called = ready
    for number in range(depth):
        names = [f"v{number}_{one}".ljust(length, "x") for one in range(many)]
        scope = {"called": called}
        exec(f"def f{number}():\\n {' = '.join(names)} = 0\\n called()", scope)
        called = scope[f"f{number}"]
    called()
def ready():
    print("ready", flush=True)
    input()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_little_is_kept_of_names_however_long(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_MOST_KEPT", 50_000)
    with standing(LONG_NAMES + "chain(3, 4000, 40)", python(version)) as program:
        interpreter = open_interpreter(program.pid)
        stack = interpreter.stack(interpreter.main_thread())
        assert len({frame.code.name for frame in stack}) > 40
        assert (
            sum(code.length for code in interpreter._kept.values())
            == interpreter._kept_length
            <= 50_000
        )
        assert stack[1].code.variables[0].startswith("v0_0xxx")


def test_a_function_whose_variables_have_names_without_end_is_not_read() -> None:
    with standing(LONG_NAMES + "chain(5, 4000, 1)") as program:
        interpreter = open_interpreter(program.pid)
        with pytest.raises(Unreadable, match="names that are too long"):
            interpreter.stack(interpreter.main_thread())


def test_few_of_the_files_are_searched_that_are_called_like_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def search(memory: Memory, start: int, names: tuple[str, ...]) -> dict[str, int]:
        asked.append(start)
        return {}

    maps = "".join(
        f"{at:x}000-{at:x}fff r--p 00000000 08:01 1 /tmp/libpython3.11.so\n"
        for at in range(1, 5000)
    )
    monkeypatch.setattr(processes, "maps", lambda pid: maps)
    monkeypatch.setattr(frames, "exported", search)
    with pytest.raises(Unreadable, match="no CPython"):
        open_interpreter(os.getpid())
    assert len(asked) <= 16


def test_a_process_that_is_no_python_is_said_to_be_none() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    try:
        with pytest.raises(Unreadable):
            open_interpreter(child)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
