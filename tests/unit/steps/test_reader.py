"""What is stored of the steps of a program whose loop is seen in samples, and whose counter is
read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest
from support.clocks import StoppedClock

from profd.daemon.clock import SECOND_NS
from profd.daemon.events import EventKind
from profd.daemon.interpreter.integers import Local, Moved, Variable
from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.interpreter.tensors import TensorVersion
from profd.daemon.stacks.origin import ANY
from profd.daemon.steps.declared import Declared
from profd.daemon.steps.loop import LoopPlace, StepLoop
from profd.daemon.steps.reader import FAR_S, FINE_S, IDLE_S, READ_S, SHORT_S, StepReader
from profd.daemon.steps.sources import Program, Source
from profd.daemon.store.records import EventHappened, Frame, Identity, PointsTaken, Record

BACKWARD = Frame("Tensor.backward", "/x/torch/_tensor.py", 9)
SCRIPT = """
def pretrain():
    for i in range(1000):
        loss.backward()
def finetune():
    for i in range(1000):
        loss.backward()
def train():
    for step in range(1000):
        loss.backward()
        if (step + 1) % 4 == 0:
            optimizer.step()
def endless():
    while True:
        loss.backward()
def play():
    for t in range(1000):
        loss.backward()
        if done:
            return
def fit():
    for epoch in range(9):
        loss.backward()
        for n in range(1000):
            loss.backward()
"""
FIRST = Source("first", Local(1, 0))
SECOND = Source("second", Local(2, 0))


class FakeProgram(Program):
    """A program whose sources and values are set by hand."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.values: dict[Variable, int] = {}
        self.frames: list[Frame] = []
        self.optimizer: Source | None = None
        self.uncounted = ""
        self.is_closed = False
        self.moves = False
        self.looks = 0
        self.followed: list[int | None] = []

    def follow(self, leader: int | None) -> None:
        self.followed.append(leader)

    def stack(self) -> list[Frame]:
        self.looks += 1
        return self.frames

    def sources_of(self, loop: StepLoop) -> list[Source]:
        found = [source for source in self.sources if source.variable in self.values]
        return found if loop.place.name != self.uncounted else []

    def optimizer_steps(self) -> Source | None:
        return self.optimizer

    def round_of(self, source: Source) -> int | None:
        if self.moves:
            raise Moved("it changes faster than it can be read")
        value = self.value(source.variable)
        return None if value is None else (value - source.start) // source.stride

    def number_of(self, _place: LoopPlace, _path: str) -> int | None:
        return None

    def value(self, variable: Variable) -> int | None:
        return self.values.get(variable)

    def close(self) -> None:
        self.is_closed = True


class Reading:
    """A reader of a program in a time that goes by a tenth of a second at each reading."""

    def __init__(self, folder: Path, *, is_readable: bool = True) -> None:
        self.file = folder / "train.py"
        self.file.write_text(SCRIPT)
        self.clock = StoppedClock(999 * SECOND_NS)
        self.records: list[Record] = []
        self.program = FakeProgram()
        self.is_readable = is_readable
        self.reader = StepReader(
            Identity(os.getpid(), 1), self.clock, self.records.append, self._attach
        )

    def _attach(self, _pid: int, _declared: Declared) -> Program:
        if not self.is_readable:
            raise Unreadable("it is another Python")
        return self.program

    def sees(self, function: str) -> None:
        """Let the program be in the backward pass of a function from now on."""
        line = (
            next(
                at for at, text in enumerate(SCRIPT.splitlines(), 1) if text == f"def {function}():"
            )
            + 2
        )
        self.program.frames = [Frame(function, str(self.file), line), BACKWARD]

    def finds(self, function: str) -> None:
        """Let the reader find the program's loop, before there is anything to be read."""
        self.sees(function)
        self.goes([self.program.values] * 10)

    def reads(self, variable: Variable, values: Sequence[int | None]) -> None:
        """Read once for each of some values that a variable has."""
        self.goes({} if value is None else {variable: value} for value in values)

    def goes(self, values: Iterable[dict[Variable, int]]) -> list[float]:
        """Read once for each state of the program's variables.

        Return how long the reader would pause after each.
        """
        pauses_s = []
        for self.program.values in values:
            pauses_s.append(self.reader.poll())
            self.clock.at_ns += SECOND_NS // 10
        return pauses_s

    @property
    def counts(self) -> list[tuple[float, float]]:
        """The counts that were stored, by seconds since the beginning."""
        taken = [one for one in self.records if isinstance(one, PointsTaken)]
        return [(one.at_ns / SECOND_NS - 1000, one.points[0].value) for one in taken]

    @property
    def errors(self) -> list[float]:
        """What was stored with each count of how far it may be wrong."""
        return [one.points[1].value for one in self.records if isinstance(one, PointsTaken)]

    @property
    def said(self) -> list[str]:
        return [one.text for one in self.records if isinstance(one, EventHappened)]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Give a reader whose program is seen in ``pretrain``, which has one source."""
    found = Reading(tmp_path)
    found.program.sources = [FIRST]
    found.finds("pretrain")
    return found


def test_a_count_is_stored_each_second_as_of_when_it_changed(reading: Reading) -> None:
    reading.reads(FIRST.variable, [10 + tenth // 5 for tenth in range(40)])
    assert reading.said == ["first"]
    assert reading.counts == [(1.0, 12), (2.0, 14), (3.0, 16)]


@pytest.mark.parametrize(("rounds", "pause_s"), [(1, FAR_S), (4, SHORT_S)])
def test_a_counter_that_goes_on_over_epochs_is_read_seldom_by_its_pace(
    tmp_path: Path, rounds: int, pause_s: float
) -> None:
    found, looks = Reading(tmp_path), 0
    found.program.sources = [Source("first", FIRST.variable, is_added=True)]
    found.finds("pretrain")

    def stack() -> list[Frame]:
        nonlocal looks
        looks += 1
        return found.program.frames

    paused_s = 0.25
    for number in range(0, 400 * rounds, rounds):
        if number == 360 * rounds:
            found.program.stack = stack  # type: ignore[method-assign]
        found.program.values = {FIRST.variable: number}
        paused_s = found.reader.poll()
        found.clock.at_ns += int(max(paused_s, 0.25) * SECOND_NS)
    assert paused_s == pause_s
    assert looks <= 40 * pause_s / 2 + 1  # one in two seconds: it is no pause while nothing is read


def test_a_loop_that_pauses_is_stored_as_standing_still_and_the_end_of_the_pause_at_once(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, [*range(20), *[20] * 40])
    standing = [at_s for at_s, count in reading.counts if count == 20]
    assert standing == pytest.approx([2.0, 2.4, 3.4, 4.4, 5.4])
    reading.reads(FIRST.variable, range(21, 40))
    resumed = next((at_s, count) for at_s, count in reading.counts if count > 20)
    assert resumed == pytest.approx((6.0, 21))


def test_where_a_loop_was_left_another_may_go_on_until_stacks_show_none(reading: Reading) -> None:
    reading.reads(FIRST.variable, [*range(20), *[None] * 40])
    reading.program.frames = [Frame("evaluate", str(reading.file), 1)]
    reading.reads(FIRST.variable, [*range(20, 40), *[None] * 40])
    errors = {
        round(at_s): error for (at_s, _), error in zip(reading.counts, reading.errors, strict=True)
    }
    assert [errors[second] for second in (1, 3, 5, 7, 9, 10)] == [0, 16, 40, 0, 16, 1]


def test_a_loop_that_is_left_before_its_pace_is_known_has_no_count_yet(reading: Reading) -> None:
    reading.reads(FIRST.variable, [57, None, *[None] * 10, 62, *range(63, 66)])
    assert reading.counts[0] == pytest.approx((1.2, 62))


def test_counts_begin_anew_with_an_epoch_that_begins_before_the_first_one_is_stored(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, [97, *range(30)])
    counts = [count for _, count in reading.counts]
    assert [count - counts[0] for count in counts] == [0, 10, 20]
    assert set(reading.errors) == {0}


def test_rounds_that_an_epoch_still_has_are_in_doubt_where_there_was_no_time_for_them(
    reading: Reading,
) -> None:
    reading.reads(
        FIRST.variable, [*range(50), *[49] * 40, *range(50), *range(50), *range(48), None]
    )
    assert abs(reading.counts[-1][1] - 200) <= reading.errors[-1] <= 8


def test_a_variable_that_moves_too_fast_to_be_read_is_no_loop_that_was_left(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.moves = True
    reading.reads(FIRST.variable, range(20, 32))
    reading.program.moves = False
    reading.reads(FIRST.variable, range(32, 50))
    assert set(reading.errors) == {0}
    reading.program.moves = True
    reading.reader.end()
    assert reading.counts[-1][1] == 49


def test_each_look_at_the_stack_is_at_the_thread_that_leads_then(reading: Reading) -> None:
    assert set(reading.program.followed) == {None}
    reading.reader.leader = lambda: 71
    reading.reads(FIRST.variable, range(20, 45))
    assert reading.program.followed[-1] == 71


def test_nothing_is_read_before_samples_show_a_loop(tmp_path: Path) -> None:
    found = Reading(tmp_path)
    found.program.sources = [FIRST]
    found.reads(FIRST.variable, [1, 2, 3])
    assert found.records == []


def test_a_program_that_cannot_be_read_yet_is_asked_again_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    found = Reading(tmp_path, is_readable=False)
    found.program.sources = [FIRST]
    found.finds("pretrain")
    assert found.said == []  # it may not have begun yet
    for _ in range(9):
        found.finds("pretrain")
    assert found.said == ["its steps are not read: it is another Python"]
    found.is_readable = True
    found.finds("pretrain")
    found.reads(FIRST.variable, range(20))
    assert found.said[1:] == ["first"]


def test_the_last_count_is_stored_at_the_end_also_where_the_program_is_gone(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, [*range(15)])
    reading.program.values = {}
    reading.reader.end()
    assert reading.counts[-1] == pytest.approx((1.5, 15))
    assert reading.program.is_closed


def test_a_loop_that_follows_counts_on_from_the_one_before(reading: Reading) -> None:
    reading.reads(FIRST.variable, [*range(20), None])
    reading.program.sources = [SECOND]
    reading.sees("train")
    reading.reads(SECOND.variable, [*range(4, 30)])
    assert reading.said == ["first", "second, 4 micro-batches for each optimizer step"]
    reading.reader.end()
    assert reading.counts[-1][1] == 20 + 29 // 4
    assert all(
        before <= after
        for (_, before), (_, after) in zip(reading.counts, reading.counts[1:], strict=False)
    )


def becomes(reading: Reading, *sources: Source) -> FakeProgram:
    """Let the process become another program, and return the one before."""
    before, reading.program = reading.program, FakeProgram()
    reading.program.sources = [*sources]
    reading.reader.renew(ANY)
    return before


def test_steps_of_a_program_are_kept_when_the_process_becomes_another_one(reading: Reading) -> None:
    reading.reads(FIRST.variable, range(20))
    before = becomes(reading, SECOND)
    reading.finds("train")
    assert before.is_closed
    reading.reads(SECOND.variable, range(40))
    reading.reader.end()
    # The round that was read last is over, and another one may be.
    assert (20, 1) in zip([steps for _, steps in reading.counts], reading.errors, strict=True)
    assert (reading.counts[-1][1], reading.errors[-1]) == (20 + 39 // 4, 1)


def test_a_program_that_does_not_train_is_left_alone_until_one_does(reading: Reading) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.is_readable = False
    reading.reader.renew(None)
    assert reading.goes([{}] * 200) == [IDLE_S] * 200
    assert reading.said == ["first"]
    reading.is_readable = True
    becomes(reading, FIRST)
    reading.finds("pretrain")
    reading.reads(FIRST.variable, range(20))
    assert reading.counts[-1][1] > 30


def test_a_stack_of_another_loop_alone_changes_nothing(reading: Reading) -> None:
    reading.program.sources = [FIRST, SECOND]
    reading.reads(FIRST.variable, range(40))
    reading.sees("train")
    reading.reads(FIRST.variable, range(40, 60))
    reading.sees("pretrain")
    reading.reads(FIRST.variable, range(60, 100))
    assert reading.said == ["first"]
    reading.sees("train")
    reading.reads(SECOND.variable, range(100))
    assert len(reading.said) == 2


def test_one_number_of_two_loops_is_counted_on(reading: Reading) -> None:
    numbers = [Source(name, FIRST.variable, is_added=True) for name in ("one", "other")]
    reading.program.sources = numbers[:1]
    reading.reads(FIRST.variable, [*range(20), None])
    reading.program.sources = numbers[1:]
    reading.finds("finetune")
    reading.reads(FIRST.variable, range(20, 40))
    reading.reader.end()
    assert reading.said == ["one", "other"]
    assert (reading.counts[-1][1], reading.errors[-1]) == (39, 0)


LOST = "steps are not counted any more: "
PARTS = "steps are not known: "


@pytest.mark.parametrize("left", [None, 19])
def test_training_that_goes_on_in_an_uncounted_loop_is_reported_once(
    reading: Reading, left: int | None
) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.uncounted = "endless"
    reading.sees("endless")
    reading.reads(
        FIRST.variable, [left] * 150
    )  # what the loop before counted by may still be there
    assert reading.said == [
        "first",
        f"{LOST}the loop at train.py:14 has no counter that can be read",
    ]
    (lost,) = (
        one
        for one in reading.records
        if isinstance(one, EventHappened) and one.kind == EventKind.STEPS_LOST
    )
    assert lost.at_ns / SECOND_NS == pytest.approx(
        1000 + 1.9
    )  # as of the last step that was counted
    stored = len(reading.counts)
    reading.sees("pretrain")
    reading.reads(FIRST.variable, range(100))
    assert reading.said[2:] == ["first"]
    assert len(reading.counts) > stored + 5
    assert reading.counts[-1][1] == pytest.approx(19 + 99, abs=20)
    assert all(
        before <= after
        for (_, before), (_, after) in zip(reading.counts, reading.counts[1:], strict=False)
    )


def test_a_loop_without_a_counter_is_looked_at_once_a_second(reading: Reading) -> None:
    reading.program.uncounted = "endless"
    reading.sees("endless")
    reading.reads(FIRST.variable, [None] * 400)
    looks = reading.program.looks
    reading.reads(FIRST.variable, [None] * 100)
    assert reading.program.looks - looks == 10
    assert reading.goes([{}]) == [SHORT_S]
    reading.sees("pretrain")  # from the next look on, as often as before
    reading.reads(FIRST.variable, range(40))
    assert reading.said == ["first"]


def test_a_loop_left_before_its_pace_is_known_is_reported_too(reading: Reading) -> None:
    reading.reads(FIRST.variable, [2])
    reading.program.uncounted = "endless"
    reading.sees("endless")
    reading.reads(FIRST.variable, [2] * 60)
    assert len(reading.said) == 2


def test_training_that_goes_on_outside_of_loops_is_reported(reading: Reading) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.uncounted = "pretrain"  # which the program is not in
    reading.program.frames = [Frame("<module>", str(reading.file), 1), BACKWARD]
    reading.reads(FIRST.variable, [19] * 60)
    assert reading.said[1:] == [f"{LOST}the training goes on outside of the loop at train.py:3"]


def test_training_that_is_elsewhere_when_the_run_ends_is_reported(reading: Reading) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.uncounted = "endless"
    reading.sees("endless")
    reading.reads(FIRST.variable, [None] * 8)
    assert reading.said == ["first"]
    reading.reader.end()
    assert len(reading.said) == 2


def test_where_nothing_trains_the_steps_are_known(reading: Reading) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.frames = [Frame("evaluate", str(reading.file), 1)]
    reading.reads(FIRST.variable, [None] * 100)
    reading.sees("pretrain")
    reading.reads(FIRST.variable, [*[19] * 100, *range(20, 30)])  # a step may take long
    reading.reader.end()
    assert reading.said == ["first", "the loop at train.py:3 has ended"]


def test_a_loop_that_begins_anew_faster_than_it_is_read_has_no_count_but_the_reason(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, [17 * tenth % 23 for tenth in range(150)])
    assert reading.counts == []
    assert reading.said[1:] == [
        "steps are not counted: their loop begins anew faster than its counter can be read"
    ]


OPTIMIZER = Source("optimizer", TensorVersion(1, 2), is_added=True, is_late=True, of_updates=True)


def test_an_optimizer_that_is_seen_at_work_counts_on_whatever_the_loops_do(
    reading: Reading,
) -> None:
    reading.reads(FIRST.variable, range(20))
    reading.program.optimizer = OPTIMIZER
    reading.goes(
        {FIRST.variable: 20 + tenth, OPTIMIZER.variable: 7020 + tenth} for tenth in range(20)
    )
    reading.program.sources = [SECOND]
    reading.sees("finetune")
    reading.goes(
        {SECOND.variable: tenth % 3, OPTIMIZER.variable: 7040 + tenth} for tenth in range(60)
    )
    reading.reader.end()
    assert reading.said[:2] == ["first", "optimizer"]
    assert (reading.counts[-1][1], reading.errors[-1]) == (99, 0)


OTHER = msgspec.structs.replace(OPTIMIZER, variable=TensorVersion(3, 2))


def test_an_optimizer_is_sought_at_once_and_another_one_less_often(reading: Reading) -> None:
    first = {FIRST.variable: 1}
    reading.goes([first] * 5)
    assert set(reading.goes([first] * 10)) == {FINE_S}
    reading.program.optimizer = OPTIMIZER
    pauses_s = reading.goes({OPTIMIZER.variable: 10 + 9 * tenth} for tenth in range(140))
    assert set(pauses_s[10:80]) == {READ_S}
    assert set(pauses_s[-20:]) == {SHORT_S}


def test_another_optimizer_counts_once_the_first_one_rests(reading: Reading) -> None:
    reading.program.optimizer = OPTIMIZER
    reading.goes({OPTIMIZER.variable: 10 + tenth} for tenth in range(40))
    reading.program.optimizer = OTHER
    reading.goes({OPTIMIZER.variable: 50 + tenth, OTHER.variable: 5} for tenth in range(40))
    assert reading.counts[-1][1] >= 80
    reading.goes({OPTIMIZER.variable: 90, OTHER.variable: 5 + tenth} for tenth in range(60))
    reading.reader.end()
    at_s, count = reading.counts[-1]
    assert abs(count - 149) <= reading.errors[-1] <= 15
    assert at_s > 13


def test_of_several_optimizers_that_with_the_most_steps_counts(reading: Reading) -> None:
    """A critic makes five steps for each of the generator, which may be seen first."""
    states = [{OPTIMIZER.variable: tenth, OTHER.variable: 5 * tenth} for tenth in range(100)]
    reading.program.optimizer = OPTIMIZER
    reading.goes(states[:30])
    reading.program.optimizer = OTHER
    reading.goes(states[30:60])
    reading.program.optimizer = OPTIMIZER
    reading.goes(states[60:])
    reading.reader.end()
    assert reading.said[-2:] == [
        f"{PARTS}optimizer was read, and another one makes more",
        "optimizer",
    ]
    (at_s, count), (later_s, more) = reading.counts[-5], reading.counts[-1]
    assert more - count == pytest.approx(50 * (later_s - at_s), abs=5)


def test_rounds_that_were_parts_of_a_step_are_taken_back(tmp_path: Path) -> None:
    """The optimizer was hidden: the loop inside of that of the steps was found first."""
    found = Reading(tmp_path)
    found.program.sources = [SECOND]
    line = SCRIPT.splitlines().index("        for n in range(1000):") + 1
    found.program.frames = [Frame("fit", str(found.file), line + 1), BACKWARD]
    found.reads(SECOND.variable, range(60))
    found.program.sources = [msgspec.structs.replace(FIRST, is_added=True)]
    found.program.frames = [Frame("fit", str(found.file), line - 1), BACKWARD]
    found.reads(FIRST.variable, range(629, 760))
    assert found.said == [
        "second",
        f"{PARTS}the rounds of the loop at train.py:24 were counted, which are parts of steps",
        "first",
    ]
    assert found.counts[-1][1] < 59 + 131


def test_a_loop_is_found_where_its_optimizer_is_never_seen_and_its_backward_pass_seldom(
    tmp_path: Path,
) -> None:
    found = Reading(tmp_path)
    found.program.sources = [FIRST]
    line = SCRIPT.splitlines().index("        for n in range(1000):") + 2
    training = [Frame("fit", str(found.file), line), BACKWARD]
    for step in range(150):
        found.program.frames = training if step % 6 == 0 else training[:1]
        found.reads(FIRST.variable, [step])
    assert found.said == ["first"]


SERVES = Frame("serve", "/srv/other.py", 3)
EVENT_LOOP = Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 9)


@pytest.mark.parametrize(
    ("around", "line", "said"),
    [((), None, 1), ((), 3, 0), ((), 5, 1), ((EVENT_LOOP,), None, 0)],
    ids=["the function is left", "within the loop", "behind the loop", "a coroutine"],
)
def test_a_loop_that_is_left_is_said_once_unless_a_coroutine_has_it(
    reading: Reading, around: tuple[Frame, ...], line: int | None, said: int
) -> None:
    reading.program.frames = [*around, *reading.program.frames]
    reading.reads(FIRST.variable, range(20))
    function = reading.program.frames[-2]
    within = () if line is None else (function._replace(line=line),)
    reading.program.frames = [*around, *within, SERVES]
    reading.reads(FIRST.variable, [None] * 600)
    events = [one for one in reading.records if isinstance(one, EventHappened)]
    assert [one.kind for one in events].count(EventKind.LOOP_LEFT) == said
