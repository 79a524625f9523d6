"""Lines that frames of running Pythons stand at, of each version that is here, against what these
programs say.
"""

from __future__ import annotations

import json
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.interpreters import VERSIONS, Program, python, standing

from profd.daemon.interpreter.lines import NONE, Lines, decoded
from profd.daemon.interpreter.memory import Unreadable

# The function ``here`` writes down where its callers are. What it returns is what ``input`` prints,
# from C: the frame that calls both is the innermost one then, at the line that was written down.
HERE = """
import asyncio, contextlib, functools, json, sys
def here():
    frame, found = sys._getframe(1), []
    while frame:
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    with open(PATH, "w") as file:
        json.dump(found, file)
    return "ready\\n"
def stop(*given, **named):
    input(here())
    return 1
"""
PLACES = """
input(here()); stop()
stop(
    stop(1),
    [
        stop(2), 2,
    ],
    named=stop(3) and stop(4)
)
class Steps:
    input(here())
    left = 2
    def __iter__(self):
        return self
    def __next__(self):
        self.left -= 1
        if not self.left:
            raise StopIteration(input(here()))
        stop()
        return 1
    @property
    def last(self):
        return input(here())
    def __enter__(self):
        stop()
    def __exit__(self, *of):
        stop()
def decorator(function):
    stop()
    @functools.wraps(function)
    def wrapper(*given):

        return function(
            *given
        )
    return wrapper
@decorator
@contextlib.contextmanager
@functools.lru_cache(
    stop() and 1
)
def decorated(
    n=stop(),
):
    input(here())
    stop()
    yield n
    stop()
def loops():
    for step in Steps():
        n = 0
        while n < 2 and stop():
            n += 1
            if n == 1:
                input(here())
                continue
            stop()
        else:
            stop()
    return [
        stop(n)
        for n in range(2)
        if n and stop()
    ], (lambda:
        input(here()))(), {
        n: stop() for n in range(1)
    }
def generators():
    def inner():
        yield stop()
        try:
            yield 1 // 0
        except ZeroDivisionError:
            input(here())
        finally:
            stop()
    yield from inner()
    yield stop(
    )
async def coroutine():
    async def inner():
        await asyncio.sleep(0)
        input(here())
    await inner()
    stop()
def main():
    with decorated(), \\
            Steps():
        stop()
        with Steps(): Steps().last
    loops()
    assert list(
        generators()
    )
    sorted([1, 2],
        key=lambda n: stop(
            n))
    asyncio.new_event_loop().run_until_complete(
        coroutine())
main()
"""


def far() -> str:
    """Return a function whose lines are far apart, in both directions."""
    gap = "\n" * 300
    return (
        f"def far():\n    n = 1{gap}    stop(n){gap}    input(here())\n"
        f"    for n in range(2):{gap}        stop(n,{gap}            stop(),{gap}            "
        "stop())\n"
        f"    stop({gap * 4}stop()\n    ){gap}    stop()\nfar()\n"
    )


def long() -> str:
    """Return functions whose code has many bytes on one line and on many, with jumps over all of
    them.
    """
    single = ", ".join(["n1" + " + n299" * 200] * 10)
    many = "".join(
        f"        n{place % 300} = n{(place + 7) % 300} + {place}\n" for place in range(12_000)
    )
    names = " = ".join(f"n{place}" for place in range(300))
    return (
        f"def wide():\n    {names} = 0\n    {single}; stop()\n    {single}\n    input(here()); "
        f"{single}\n    stop()\n"
        f"def tall():\n    {names} = 0\n    for turn in range(2):\n        stop()\n"
        f"        if turn:\n            continue\n{many}        input(here())\n{many}    stop()\n"
        "wide()\ntall()\n"
    )


def stops(program: Program, path: Path) -> Iterator[list[tuple[str, int]]]:
    """Yield what the program has written down, each time it stands still, up to where its function
    ``end`` does.
    """
    while True:
        said = [(name, line) for name, line in json.loads(path.read_text())]
        if said[0][0] == "end":
            return
        yield said
        program.running.go_on()


END = "\ndef end():\n    input(here())\nend()\n"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("text", "at_least"), [(PLACES, 35), (far(), 8), (long(), 6)], ids=["places", "far", "long"]
)
def test_each_frame_stands_at_the_line_that_it_says(
    version: str, text: str, at_least: int, tmp_path: Path
) -> None:
    path = tmp_path / "said"
    source = tmp_path / "program.py"
    source.write_text(f"PATH = {str(path)!r}\n{HERE}{text}{END}")
    with standing(
        f"exec(compile(open({str(source)!r}).read(), 'program', 'exec'))", python(version)
    ) as running:
        program = Program(running)
        lines = Lines(program.python)
        seen = set()
        for said in stops(program, path):
            stack = program.python.stack(program.thread)
            assert [(frame.code.name, lines.line_of(frame)) for frame in stack] == said
            seen.add(tuple(said))
        assert len(seen) >= at_least


ENDING = """
def ready():
    print("ready", flush=True)
    input()
def first():
    ready()
def second(a=1, b=2):
    ready()
first()
second()
ready()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_with_another_code_has_no_line(version: str) -> None:
    with standing(ENDING, python(version)) as running:
        program = Program(running)
        lines = Lines(program.python)
        first = program.frame("first")
        assert lines.line_of(first) == 6
        assert lines.line_of(replace(first, code=program.frame("ready").code)) is None
        assert lines.line_of(replace(first, code=replace(first.code, first_line=4))) is None
        running.go_on()
        assert lines.line_of(first) is None
        assert lines.line_of(program.frame("second")) == 8


@pytest.mark.parametrize(
    "version", [version for version in VERSIONS if version not in ("3.8", "3.9", "3.10")]
)
def test_a_frame_may_get_another_code_meanwhile(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standing(ENDING, python(version)) as running:
        program = Program(running)
        first, read, reads = program.frame("first"), program.python.memory.read, []

        def read_and_go_on(address: int, length: int) -> bytes:
            data = read(address, length)
            reads.append(address)
            if len(reads) == 1:
                running.go_on()
            return data

        monkeypatch.setattr(program.python.memory, "read", read_and_go_on)
        assert Lines(program.python).line_of(first) is None
        assert program.frame("second").address == first.address
        assert len(reads) > 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_code_may_be_where_another_was(version: str, tmp_path: Path) -> None:
    path = tmp_path / "said"
    text = f"""PATH = {str(path)!r}\n{HERE}
for n in range(60):
    exec(compile(chr(10) * (n % 6) + "n = 1;" + chr(10) * (n % 5) + "input(here())", "made", "exec"))
"""
    with standing(text + END, python(version)) as running:
        program = Program(running)
        lines = Lines(program.python)
        for said in stops(program, path):
            stack = program.python.stack(program.thread)
            # What the interpreter keeps of a code may be of the one before, but then there is no
            # line.
            assert lines.line_of(stack[0]) in (said[0][1], None)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_instruction_of_the_code_is_unreadable(version: str) -> None:
    with standing(ENDING, python(version)) as running:
        program = Program(running)
        frame = program.frame("first")
        table = program.python.offsets.line_table
        broken = replace(program.python.offsets, line_table=program.python.offsets.name)
        program.python.offsets = broken
        with pytest.raises(Unreadable, match="table of lines"):
            Lines(program.python).line_of(frame)
        program.python.offsets = replace(broken, line_table=table, instruction=broken.globals)
        if program.python.version >= (
            3,
            10,
        ):  # the tables of older ones do not say where a code ends
            with pytest.raises(Unreadable, match="not in its code"):
                Lines(program.python).line_of(frame)
        running.end()
        with pytest.raises(Unreadable):
            Lines(program.python).line_of(frame)


def test_what_cannot_be_read_since_the_frame_went_on_is_no_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with standing(ENDING, sys.executable) as running:
        program = Program(running)
        frame, offsets, memory = (
            program.frame("first"),
            program.python.offsets,
            program.python.memory,
        )
        program.python.offsets = replace(offsets, line_table=offsets.name)
        read, seen = memory.read, set()

        def read_once(address: int, length: int) -> bytes:
            data = bytes(length) if (address, length) in seen else read(address, length)
            seen.add((address, length))
            return data

        monkeypatch.setattr(memory, "read", read_once)
        assert Lines(program.python).line_of(frame) is None


COMPILED = """
import argparse, dis, json, tarfile, typing
def codes(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, type(code)):
            yield from codes(one)
found = []
for module in (argparse, tarfile, typing):
    with open(module.__file__) as file:
        text = file.read()
    for code in codes(compile(text, "name", "exec")):
        lines = [None] * (len(code.co_code) // 2)
        if hasattr(code, "co_lines"):
            for start, end, line in code.co_lines():
                lines[start // 2 : end // 2] = [line] * ((end - start) // 2)
        else:
            for start, line in dis.findlinestarts(code):
                lines[start // 2 :] = [line] * (len(lines) - start // 2)
        table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        found.append([code.co_firstlineno, table.hex(), lines])
print(json.dumps(found))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_have_the_lines_that_their_python_says(version: str) -> None:
    done = subprocess.run(
        [python(version), "-c", COMPILED], stdout=subprocess.PIPE, check=True, text=True
    )
    codes: list[tuple[int, str, list[int | None]]] = json.loads(done.stdout)
    major, minor = map(int, version.split("."))
    for first_line, table, said in codes:
        starts, lines = decoded((major, minor), first_line, bytes.fromhex(table))
        found = [lines[bisect_right(starts, 2 * place) - 1] for place in range(len(said))]
        assert [None if line == NONE else line for line in found] == said
        assert minor < 10 or starts[-1] == 2 * len(said)
    assert len(codes) > 300
    assert (None in {line for _, _, said in codes for line in said}) == (minor >= 10)


def test_a_table_whose_line_is_none_is_unreadable() -> None:
    entry = bytes(
        [0b1_1101_000, *[0b01_111111] * 8]
    )  # one without columns, whose line is 2^47 further back
    with pytest.raises(Unreadable, match="no line"):
        decoded((3, 12), 1, entry * 70_000)
