"""What counts the rounds of loops of running programs, for each Python that is here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.interpreters import VERSIONS, Standing, python, standing

from profd.daemon.interpreter.frames import open_interpreter
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.stacks.origin import origin_of
from profd.daemon.steps.declared import Declared
from profd.daemon.steps.loop import StepLoop, find_loop, sight_of
from profd.daemon.steps.sources import Program
from profd.daemon.store.records import Frame

BACKWARD = Frame("Tensor.backward", "/x/torch/_tensor.py", 9)
WAITS = """
def backward():
    print("ready", flush=True)
    input()

"""


@contextlib.contextmanager
def training(
    folder: Path, source: str, version: str
) -> Iterator[tuple[Standing, Program, StepLoop]]:
    """Run a script up to its first call of ``backward()``.

    Give what reads it, and the loop around that call.
    """
    file = folder / "train.py"
    file.write_text(WAITS + source)
    lines = file.read_text().splitlines()
    line = next(
        number for number, text in enumerate(lines, 1) if "    backward()" in text or "abc" in text
    )
    name = "fit" if "def fit" in source else "train" if "def train" in source else "<module>"
    around = (
        [Frame("train", str(file), lines.index("        fit()") + 1)] if "def fit" in source else []
    )
    declared = Declared()
    loop = find_loop([sight_of([*around, Frame(name, str(file), line), BACKWARD], declared)] * 20)
    assert loop is not None
    program = (
        f"exec(compile(open({str(file)!r}).read(), {str(file)!r}, 'exec'), {{'__name__': "
        f"'__main__'}})"
    )
    with standing(program, python(version)) as running:
        yield running, Program(running.pid, declared), loop


MODULE = """
iter_num = 100
while True:
    backward()
    iter_num += 1
"""
ENUMERATED = """
def train():
    for epoch in range(3):
        with open("/dev/null"):
            for i, x in enumerate("abcd"):
                backward()
train()
"""
STRIDE = """
batch = 32
def train():
    for start in range(0, 32 * 4, batch):
        backward()
train()
"""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("source", "name", "rounds"),
    [
        (MODULE, "loop counter `iter_num` in <module> (train.py:8)", (100, 101, 102)),
        (ENUMERATED, "loop counter `i` in train (train.py:10)", (0, 1, 2, 3, 0, 1)),
        (STRIDE, "loop counter `start` in train (train.py:9)", (0, 1, 2)),
    ],
    ids=["module", "enumerate", "stride"],
)
def test_each_round_is_read(
    version: str, source: str, name: str, rounds: tuple[int, ...], tmp_path: Path
) -> None:
    with training(tmp_path, source, version) as (running, program, loop):
        found = program.sources_of(loop)[0]
        assert found.name == name
        for expected in rounds:
            assert program.round_of(found) == expected
            running.go_on()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_counts_only_in_its_own_loop(version: str, tmp_path: Path) -> None:
    source = """
wait = backward
def train():
    for epoch in range(9):
        for step in range(2):
            backward()
        wait()
        for other in range(2):
            wait()
train()
"""
    with training(tmp_path, source, version) as (running, program, loop):
        is_found = []
        for _ in range(6):
            is_found.append(bool(program.sources_of(loop)))
            running.go_on()
        assert is_found == [True, True, False, False, False, True]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_loop_that_evaluates_by_itself_has_no_count_meanwhile(
    version: str, tmp_path: Path
) -> None:
    source = """
wait = backward
class Engine:
    def train(self, evaluator=None):
        seen = 0
        while seen < 2:
            seen += 1
            if evaluator:
                backward()
                evaluator.train()
            else:
                wait()
Engine().train(Engine())
"""
    with training(tmp_path, source, version) as (running, program, loop):
        said = []
        for _ in range(4):
            said.append([one.name.split("`")[1] for one in program.sources_of(loop)])
            running.go_on()
        assert said == [["seen"], [], [], ["seen"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stack_begins_at_the_outermost_frame_and_has_lines_up_to_what_trains(
    version: str, tmp_path: Path
) -> None:
    library = tmp_path / "torch" / "_tensor.py"
    library.parent.mkdir()
    library.write_text(
        "def backward():\n    inner()\ndef inner():\n    print('ready', flush=True)\n    input()\n"
    )
    (tmp_path / "train.py").write_text(
        "def train():\n    for step in range(9):\n        backward()\n\ntrain()\n"
    )
    program = (
        f"import os; os.chdir({str(tmp_path)!r}); names = {{}}\n"
        f"exec(compile(open('torch/_tensor.py').read(), {str(library)!r}, 'exec'), names)\n"
        "exec(compile(open('train.py').read(), './train.py', 'exec'), names)"
    )
    with standing(program, python(version)) as running:
        frames = Program(running.pid, Declared(origin=origin_of(running.pid))).stack()
    script = str(tmp_path / "train.py")
    assert frames[-4:] == [
        *(
            Frame("<module>", script, 5),
            Frame("train", script, 3),
            Frame("backward", str(library), 2),
        ),
        Frame("inner", str(library), 0),
    ]


def test_the_stack_is_that_of_the_thread_that_leads(tmp_path: Path) -> None:
    program = (
        "\nimport threading\ndef train():\n    ready()\n"
        "thread = threading.Thread(target=train)\nthread.start()\nthread.join()\n"
    )
    with standing(program) as running:
        opened, python_ = Program(running.pid, Declared()), open_interpreter(running.pid)
        idents = [python_.memory.word(one + python_.offsets.ident) for one in python_.threads()]
        functions: list[bool] = []
        for ident in (*idents, None, 1):
            with contextlib.suppress(Unreadable):  # as the last one, which is no thread of it
                opened.follow(ident)
            functions.append("train" in {frame.function for frame in opened.stack()})
    assert functions == [True, False, False, False]


def test_a_program_that_cannot_be_read_says_why() -> None:
    with pytest.raises(Unreadable, match=r"^its memory cannot be opened"):
        Program(1 << 30, Declared())


def test_a_loop_without_any_count_has_no_source(tmp_path: Path) -> None:
    source = (
        "def train():\n    for x in [1, 2, 3]:\n        backward()\n        self_made = "
        "x\ntrain()\n"
    )
    with training(tmp_path, source, "3.11") as (running, program, loop):
        assert program.sources_of(loop) == []
        running.go_on()
        assert program.number_of(loop.place, "self_made") == 1
        assert program.number_of(loop.place, "nothing") is None
