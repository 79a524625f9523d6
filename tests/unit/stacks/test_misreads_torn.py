"""Which stacks cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon.stacks.evidence import MOST_CALLS, MOST_STACKS, Calls, StackEvidence, SuffixIndex
from profd.daemon.stacks.misreads import is_plausible, mend, valid_roots
from profd.daemon.stacks.source import Statements
from profd.daemon.store.records import Frame, Stack

PROGRAM = """\
def step(model, optimizer, flag):
    loss = model(flag)
    loss.backward()
    optimizer.step()
    done = flag
    return done
"""


def frames(*functions: str) -> tuple[Frame, ...]:
    return tuple(Frame(function, "x.py", 1) for function in functions)


SCRIPT = frames("<module>", "main", "train")
THREAD = frames("Thread._bootstrap", "Thread.run", "loop")
GLUED = frames("Condition.notify", "Queue.put")


def is_torn(stack: tuple[Frame, ...], roots: frozenset[str]) -> bool:
    return mend([stack], roots, StackEvidence()) == [None]


def test_a_beginning_is_valid_where_most_samples_of_its_kind_of_thread_have_it() -> None:
    roots = valid_roots([(SCRIPT, 1), (GLUED, 99)])
    assert not is_torn(SCRIPT, roots)
    assert is_torn(GLUED, roots)
    run = frames("_run_module_as_main", "_run_code", "main")
    roots = valid_roots([(run, 5), (SCRIPT, 5), (GLUED, 1)])
    assert roots == {"_run_module_as_main", "<module>"}
    roots = valid_roots([(THREAD, 50)])
    assert not is_torn(THREAD, roots)
    assert is_torn(SCRIPT, roots)
    callback = frames("hook", "log")
    roots = valid_roots([(callback, 3), (frames("hook"), 3), (GLUED, 5)])
    assert roots == {"hook"}
    assert is_torn(GLUED, roots)
    assert valid_roots([]) == frozenset()
    assert valid_roots([((), 7)]) == frozenset()
    assert is_torn((), valid_roots([(SCRIPT, 1), ((), 50)]))
    assert is_torn(SCRIPT, frozenset())


NO_FRAMES = (
    *(
        Frame("\u00b0", "0", 3838152352),
        Frame("", "x.py", 1),
        Frame("f", "", 1),
        Frame("\0" * 8, "x.py", 1),
    ),
    *(
        Frame("f", "\0", 1),
        Frame("f", "x.py", 3838152352),
        Frame("f", "x.py", -4),
        Frame("f", "x.py", 1 << 31),
    ),
)


@pytest.mark.parametrize("frame", NO_FRAMES)
def test_memory_that_is_no_frame_is_torn(frame: Frame) -> None:
    assert not is_plausible(frame)
    assert is_torn((*SCRIPT, frame), valid_roots([(SCRIPT, 1)]))


FROM_ANYWHERE = [
    *(
        "<string>",
        "<frozen importlib._bootstrap>",
        "<ipython-input-3>",
        "/a b/ü.py",
        "x",
        "0",
        "123",
    ),
    # Spaces that are none of ASCII's, joiners, a soft hyphen, private use, control characters,
    # letters to come.
    *(
        "/My\u00a0Drive/x.py",
        "/a\u3000b/x.py",
        "/a\u200c\u200db/x.py",
        "/a\u00adb/x.py",
        "/a\ue000b/x.py",
    ),
    *(
        "/a\nb/x.py",
        "/a\t\x1b[31mb/x.py",
        "/a\U000323b0\u0378b/x.py",
        "/a\ufffdb/x.py",
        "/a\u2028b/x.py",
        "a\0b",
    ),
]


@pytest.mark.parametrize("name", FROM_ANYWHERE)
def test_frames_of_code_from_anywhere_are_plausible(name: str) -> None:
    for frame in (
        Frame("<listcomp>", name, 0),
        Frame(name, "x.py", 1),
        Frame("f", name, 2_000_000_000),
    ):
        assert is_plausible(frame)
        assert not is_torn((*SCRIPT, frame), valid_roots([(SCRIPT, 1)]))


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def loop(program: str, times: int) -> list[tuple[Frame, ...]]:
    """Return what is seen of ``times`` steps, each stack whole."""
    calls = [(2, "Model.__call__"), (3, "Tensor.backward"), (4, "Adam.step")]
    return [call(program, line, name) for line, name in calls] * times


def torn(stacks: list[tuple[Frame, ...]]) -> list[bool]:
    return [stack is None for stack in mended(stacks)]


def mended(stacks: list[Stack]) -> list[Stack | None]:
    return mend(stacks, frozenset({"<module>"}), StackEvidence(Statements()))


def call(program: str, line: int, callee: str) -> tuple[Frame, ...]:
    return (
        Frame("<module>", program, 99),
        Frame("step", program, line),
        Frame(callee, "/lib/torch.py", 7),
    )


def test_a_line_that_calls_nothing_is_torn_from_what_stands_below_it(program: str) -> None:
    assert torn([call(program, 5, "Adam.step"), call(program, 6, "anything")]) == [True, True]
    assert torn([call(program, 5, "Tensor.__del__")]) == [False]
    elsewhere = (
        Frame("<module>", program, 99),
        Frame("main", program, 4),
        Frame("Adam.step", "/lib/torch.py", 7),
    )
    others = [stack for stack in loop(program, 40) if stack[-1] != elsewhere[-1]]
    assert (
        mended([*others, *[elsewhere, others[0]] * 40, call(program, 3, "Adam.step")])[-1]
        == elsewhere
    )
    stacks = [
        *loop(program, 40),
        call(program, 3, "Adam.step"),
        call(program, 6, "Tensor.backward"),
    ]
    assert mended(stacks) == [
        *loop(program, 40),
        call(program, 4, "Adam.step"),
        call(program, 3, "Tensor.backward"),
    ]


def test_what_lost_its_root_is_the_stack_that_ends_so_most_often(program: str) -> None:
    deep = (*call(program, 4, "Adam.step"), Frame("adam", "/lib/torch.py", 9))
    other = (*call(program, 3, "Tensor.backward"), Frame("adam", "/lib/torch.py", 9))
    stacks = [*[deep, call(program, 2, "Model.__call__")] * 3, other, other]
    assert mended([*stacks, deep[-1:]])[-1] == deep
    assert mended([*stacks, other[-2:]])[-1] == other
    glued = (Frame("is_compiling", "/lib/torch.py", 90_970_258), *other[-2:])
    assert mended([*stacks, glued])[-1] == other
    assert mended([*stacks, (Frame("adam", "/lib/torch.py", 10),)])[-1] is None


def test_a_lost_root_is_that_of_the_same_kind_of_thread(program: str) -> None:
    evidence = StackEvidence(Statements())
    worker = (
        Frame("Thread._bootstrap", "/lib/threading.py", 1002),
        Frame("run", "/lib/threading.py", 9),
    )
    mend([worker], frozenset({"Thread._bootstrap"}), evidence)
    assert mend([worker[-1:]], frozenset({"<module>"}), evidence) == [None]
    assert mend([worker[-1:]], frozenset({"Thread._bootstrap"}), evidence) == [worker]


def test_a_torn_stack_of_no_known_ending_tells_of_where_its_function_or_its_file_is_run(
    program: str,
) -> None:
    root = Frame("<module>", program, 99)
    busy = (root, Frame("report", program, 4), Frame("info", "/lib/logging.py", 9))
    calm, idle = (root, Frame("multiply", program, 2)), (root, Frame("wait", program, 3))
    for lost in (Frame("release", "/lib/logging.py", 930), Frame("info", "/lib/logging.py", 12)):
        evidence = StackEvidence(Statements())
        seen = [busy, calm, idle] * 20
        assert mend([*seen, (lost,)], frozenset({"<module>"}), evidence) == [*seen, None]
        assert evidence.torn_shares.of(busy) > 8 * evidence.torn_shares.of(calm)
    evidence = StackEvidence(Statements())  # one of no known file tells of no place
    mend(
        [*loop(program, 40), (Frame("encode", "/lib/json.py", 3),)],
        frozenset({"<module>"}),
        evidence,
    )
    assert len({evidence.torn_shares.of(one) for one in loop(program, 1)}) == 1


def test_of_a_program_that_makes_up_functions_few_stacks_are_held() -> None:
    root, endings = Frame("<module>", "/home/ada/train.py", 9), SuffixIndex()
    usual = root, Frame("usual", "<string>", 1)
    for number in range(5_000):
        made_up = root, Frame(f"f{number}", "<string>", 1)
        endings.learn({made_up: 1, usual: 2})
        assert endings.whole(made_up[1:], frozenset({"<module>"})) == made_up
        assert endings.held <= MOST_STACKS + 1
    assert endings.whole(usual[1:], frozenset({"<module>"})) == usual


def test_of_a_program_that_makes_up_functions_few_calls_are_held() -> None:
    main, step, calls = (
        Frame("main", "/home/ada/train.py", 9),
        Frame("step", "/home/ada/train.py", 30),
        Calls(),
    )
    calls.add([(main, step), (main,)], [0, 1] * 200)
    for number in range(2 * MOST_CALLS):
        calls.add([(main, Frame(f"f{number}", "<string>", 1))], [0])
        assert calls.held <= MOST_CALLS + 1
    assert calls.callers(("step", "/home/ada/train.py"))[main] == 100
    assert calls.times_left[main] > MOST_CALLS / 2
    assert (
        sum(1 for number in range(2 * MOST_CALLS) if calls.callers((f"f{number}", "<string>")))
        <= MOST_CALLS
    )


def test_little_is_known_in_the_beginning_and_a_call_that_is_seen_again_is_no_tear(
    program: str,
) -> None:
    assert not any(torn([*loop(program, 5), call(program, 3, "Adam.step")]))
    stacks = [
        *loop(program, 40),
        *[call(program, 3, "Adam.step"), call(program, 2, "Model.__call__")] * 5,
    ]
    assert not any(torn(stacks))


def test_a_new_line_may_call_what_has_no_name_of_its_own(program: str, tmp_path: Path) -> None:
    other = tmp_path / "evaluate.py"
    other.write_text("def evaluate(model):\n    return model(1)\n")
    stack = (
        Frame("<module>", program, 99),
        Frame("evaluate", str(other), 2),
        Frame("Model.__call__", "/lib/torch.py", 7),
    )
    assert not any(torn([*loop(program, 40), stack]))


def test_two_lines_may_call_what_has_no_name_of_its_own_unless_one_is_known_for_other_calls(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    path.write_text("def step(model, criterion, x):\n    y = model(x)\n    return criterion(y)\n")
    seldom, often = (call(str(path), line, "Module._wrapped_call_impl") for line in (3, 2))
    other = call(str(path), 1, "other")
    assert not any(torn([*[often, other] * 30, *[seldom, other] * 4]))
    path.write_text("def step(batches, model):\n    for x in batches:\n        model(x)\n")
    drawn, modeled = (
        call(str(path), 2, "random_batches"),
        call(str(path), 3, "Module._wrapped_call_impl"),
    )
    stacks = [*[drawn, modeled] * 40, call(str(path), 3, "random_batches")]
    assert mended(stacks) == [*[drawn, modeled] * 40, drawn]


def test_a_call_that_lasts_is_seen_once_and_unread_source_speaks_against_nothing() -> None:
    assert not any(
        torn([*loop("/nowhere/program.py", 40), call("/nowhere/program.py", 3, "Adam.step")])
    )
    calls = Calls()
    calls.add([SCRIPT, (*SCRIPT, Frame("f", "x.py", 1))], [0, 1, 0])
    assert calls.callers(("main", "x.py")) == {SCRIPT[0]: 1}
    assert calls.callers(("f", "x.py")).total() == 1


_names = st.sampled_from(["a", "b", "Net.forward", "<lambda>", "", "\x00"])
_frames = st.builds(Frame, _names, st.sampled_from(["/x.py", "0", "<string>"]), st.integers(-1, 3))
_stacks = st.lists(st.lists(_frames, max_size=6).map(tuple), max_size=30)


@given(_stacks)
def test_what_is_kept_begins_at_a_root_and_is_plausible(stacks: list[tuple[Frame, ...]]) -> None:
    roots = valid_roots((stack, 1) for stack in stacks)
    whole = [
        bool(stack) and stack[0].function in roots and all(map(is_plausible, stack))
        for stack in stacks
    ]
    seen = {stack for stack, is_whole in zip(stacks, whole, strict=True) if is_whole}
    once = StackEvidence()
    alone = [mend([stack], roots, once)[0] == stack for stack in stacks]  # whatever stood before
    assert alone == [
        found == stack
        for stack, found in zip(stacks, mend(stacks, roots, StackEvidence()), strict=True)
    ]
    for stack, found in zip(stacks, mend(stacks, roots, StackEvidence()), strict=True):
        if stack in seen:
            assert found == stack
        elif stack and any(one[-1] == stack[-1] for one in seen):
            assert found in seen
            assert found[-1] == stack[-1]
        else:
            assert found is None


@given(st.integers(1, 60), st.integers(0, 5))
def test_a_loop_that_only_does_what_it_says_is_never_torn(times: int, seed: int) -> None:
    lines = [(2, "Model.__call__"), (3, "Tensor.backward"), (4, "Adam.step")]
    stacks = [call("/gone.py", *lines[(at * (seed + 1)) % 3]) for at in range(times)]
    assert not any(torn(stacks))


def test_a_rare_line_is_doubted_sooner_beside_another_one_of_its_function(program: str) -> None:
    other, seldom = call(program, 2, "Model.__call__"), call(program, 5, "helper")
    elsewhere = (
        Frame("<module>", program, 99),
        Frame("main", program, 4),
        Frame("helper", "/lib/torch.py", 7),
    )
    assert mended([*[elsewhere, other] * 95, *[seldom, other] * 5])[-2] == seldom
    usual = call(program, 4, "helper")
    assert mended([*[usual, other] * 95, *[seldom, other] * 5])[-2] == usual
