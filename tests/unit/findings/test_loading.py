"""Batches that the main thread makes or waits for: whose remedy it is."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from support.findingruns import (
    BUSY_WORKER,
    IDLE_WORKER,
    LOOP,
    STANDARD,
    Case,
    Series,
    Spans,
    at_most_without,
    cores,
    step,
)
from support.present import there
from support.synthetic import DATA_WAIT, MAIN_TID, TRAIN, worker
from support.training_stacks import BACKWARD, CONV, DATA, LIBRARY, OPTIMIZER

from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING, Finding
from profd.daemon.findings.loading import (
    awaited_input,
    idle_workers,
    load_in_process,
    saturated_workers,
    starting_workers,
)
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.phases import sampler
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.rows import IntervalRow
from profd.daemon.units import times

DATALOADER = LIBRARY + "torch/utils/data/dataloader.py"
ITERATOR = (
    Frame("DataLoader.__iter__", DATALOADER, 500),
    Frame("DataLoader._get_iterator", DATALOADER, 435),
)
FORK = (
    *ITERATOR,
    Frame("_MultiProcessingDataLoaderIter.__init__", DATALOADER, 1170),
    Frame("Popen._launch", STANDARD + "multiprocessing/popen_fork.py", 66),
)
NEXT = Frame("_BaseDataLoaderIter.__next__", DATALOADER, 732)
INDEX = Frame("_BaseDataLoaderIter._next_index", DATALOADER, 723)
SINGLE = Frame("_SingleProcessDataLoaderIter._next_data", DATALOADER, 788)
PREFETCH = Frame("_MultiProcessingDataLoaderIter._try_put_index", DATALOADER, 1530)
FETCH = Frame("_MapDatasetFetcher.fetch", LIBRARY + "torch/utils/data/_utils/fetch.py", 52)
END = Frame("_MultiProcessingDataLoaderIter._shutdown_workers", DATALOADER, 1600)


def loop(case: Case, text: str = "for images, labels in loader:") -> tuple[Frame, ...]:
    return (*LOOP, case.line("train_epoch", 158, text, TRAIN))


def cause_of(case: Case, spans: Spans, workers: Mapping[int, Spans]) -> str:
    return case.finding(saturated_workers, spans, workers=workers).cause


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "for images, labels in loader:",
            "Set persistent_workers=True in the DataLoader (train.py:158)",
        ),
        ("batch = next(iter(loader))", "Make the iterator once, before the loop"),
    ],
)
def test_workers_that_are_started_anew_are_to_be_kept(case: Case, text: str, remedy: str) -> None:
    root = loop(case, text)
    wait = (*root, NEXT, *DATA_WAIT[4:])
    spans = step(((*root, *FORK), 60), (wait, 140), ((*root, END), 50))
    for busy in (BUSY_WORKER, IDLE_WORKER):
        given = {"workers": {1: busy, 2: busy}, "generations": 6}
        found = case.finding(starting_workers, spans, **given)
        assert "takes 50 % of the time (train.py:158): keeping them" in found.title
        assert found.remedy.startswith(remedy)
        assert "59 times here" in found.cause  # a training begins with its first step
        for rule in (saturated_workers, idle_workers):
            assert case.found(rule, spans, **given) is None


def test_what_is_waited_for_after_the_first_batch_is_no_matter_of_starts(case: Case) -> None:
    root = loop(case)
    wait = (*root, NEXT, *DATA_WAIT[4:])
    first = ((*root, *FORK), 40), (wait, 60), (CONV, 100)
    epoch = *first, (wait, 100), (CONV, 100), (BACKWARD, 90), (OPTIMIZER, 10)
    workers = {1: BUSY_WORKER, 2: BUSY_WORKER}
    assert "takes 20 % of the time" in case.title(starting_workers, epoch, workers=workers)
    assert "waits for data 20 % of the time" in case.title(
        saturated_workers, epoch, workers=workers
    )


def test_an_iterator_without_workers_and_workers_that_are_kept_are_no_starts(case: Case) -> None:
    root = loop(case)
    spans = step(((*root, *ITERATOR), 200))
    assert case.found(starting_workers, spans) is None
    quick = step((DATA_WAIT, 10))
    twice = quick, step(((*root, *FORK), 400)), quick, quick
    assert case.found(starting_workers, *twice, workers={1: BUSY_WORKER}, seconds=4) is None
    assert case.found(starting_workers, *twice, workers={1: BUSY_WORKER}, seconds=8) is not None


class _Counting(RunReader):
    """Counts the intervals that are read one by one."""

    count = 0

    def intervals(self, *which: Any) -> Iterator[IntervalRow]:  # noqa: ANN401
        for row in super().intervals(*which):
            self.count += 1
            yield row


def test_of_a_long_run_the_minutes_with_starts_and_with_long_waits_are_read(case: Case) -> None:
    root = loop(case)
    wait = (*root, NEXT, *DATA_WAIT[4:])
    start, waiting = (((*root, *FORK), 500),), ((wait, 500),)
    seconds = [step((wait, 100))] * 1470
    seconds[178:270] = [start, *[waiting] * 91]
    seconds[599] = seconds[899] = start
    seconds[900:960] = [*[waiting] * 5, *[step()] * 55]
    seconds[1000:1050] = [waiting] * 50
    seconds[1080:1140] = [step((wait, 50))] * 60
    case.found(starting_workers, *seconds, workers={1: IDLE_WORKER}, seconds=1470)

    def looked() -> tuple[tuple[Finding | None, ...], int]:
        reader = _Counting(case.path)
        with reader:
            context = FindingContext(reader)
            return (starting_workers(context), idle_workers(context)), reader.count

    by_minutes, few = looked()
    with sqlite3.connect(case.path) as file:
        file.execute("DELETE FROM summed_process")
    assert looked()[0] == by_minutes
    assert few < looked()[1]


@pytest.mark.parametrize("above", [(NEXT, SINGLE), (NEXT, PREFETCH), (*ITERATOR, PREFETCH)])
@pytest.mark.parametrize("workers", [{}, {1: BUSY_WORKER}])
def test_no_worker_spares_the_main_thread_the_choice_of_samples(
    case: Case, above: tuple[Frame, ...], workers: Mapping[int, Spans]
) -> None:
    root = loop(case)
    choose = case.line("Balanced.__iter__", 71, "yield sorted(self.pool, key=self.draw)")
    spans = step(((*root, *above, INDEX, choose), 200))
    found = case.finding(sampler, spans, workers=workers)
    assert found.title.startswith(
        "input-bound: choosing the samples of batches takes 40 % of the time (augment.py:71,"
    )
    assert "no worker can do it" in found.remedy
    for rule in (load_in_process, starting_workers, saturated_workers, idle_workers, overhead):
        assert case.found(rule, spans, workers=workers) is None


def test_torch_that_puts_all_samples_in_order_for_a_single_batch_is_at_the_line_of_the_loop(
    case: Case,
) -> None:
    root = loop(case, "images, labels = next(iter(loader))")
    shuffle = Frame("RandomSampler.__iter__", LIBRARY + "torch/utils/data/sampler.py", 182)
    fetch = (*root, NEXT, SINGLE, FETCH, Frame("Photos.__getitem__", DATA, 33))
    spans = step(((*root, NEXT, SINGLE, INDEX, shuffle), 200), (fetch, 100))
    found = case.finding(sampler, spans)
    assert found.title.startswith(
        "input-bound: choosing the samples of batches takes 40 % of the time (train.py:158)"
    )
    assert "next(iter(loader)), make the iterator once before it" in found.remedy
    assert "loads data 20 % of the time" in case.title(load_in_process, spans)


def test_most_of_loading_may_be_joining_samples(case: Case) -> None:
    collate = Frame("default_collate", LIBRARY + "torch/utils/data/_utils/collate.py", 398)
    spans = step(((*loop(case), NEXT, SINGLE, FETCH, collate), 200))
    remedy = case.finding(load_in_process, spans, series=cores(4)).remedy
    assert "Most of it joins samples into batches" in remedy


def of_machine(*, cores_used: float, count: int = 4) -> list[Series]:
    """Return the readings of a machine of some cores, of which so many are in use."""
    return [*cores(count), Series("host_cpu_share", cores_used / count, identity=None)]


def of_training(main: float, each: float = 0.0, workers: int = 0) -> list[Series]:
    """Return the CPU time per second of the main process and of each worker."""
    used = [Series("cpu_cores", each, identity=worker(number + 1)) for number in range(workers)]
    return [Series("cpu_cores", main), Series("cpu_cores", main, tid=MAIN_TID), *used]


@pytest.mark.parametrize(
    ("wait_ms", "readings", "said"),
    [
        # One worker has a core, the main thread hardly any: two cores allow for nearly 2 times.
        (
            450,
            [*of_training(0.1, 1.0, 1), *of_machine(cores_used=1.1)],
            "num_workers=4",
        ),
        (
            450,
            [*of_training(0.1, 1.0, 1), *of_machine(cores_used=1.1, count=16)],
            "num_workers=10-11",
        ),
        # Others use what is left, or most of it.
        (450, [*of_training(0.1, 1.0, 1), *of_machine(cores_used=4.0)], None),
        (450, [*of_training(0.1, 1.0, 1), *of_machine(cores_used=3.0)], "num_workers=2"),
        # The model itself needs the cores: more batches need more of them.
        (250, [*of_training(2.0, 1.0, 1), *of_machine(cores_used=3.0)], "num_workers=2"),
        (250, [*of_training(2.9, 1.0, 1), *of_machine(cores_used=3.9)], None),
    ],
)
def test_workers_are_as_many_as_keep_up_and_find_a_core(
    case: Case, wait_ms: int, readings: Sequence[Series], said: str | None
) -> None:
    spans = step((DATA_WAIT, wait_ms))
    found = case.finding(saturated_workers, spans, workers={1: BUSY_WORKER}, series=readings)
    assert found.remedy.startswith(f"Set {said} in" if said else "Make loading cheaper")
    gain = there(found.gain_bound)
    assert gain == pytest.approx(at_most_without(wait_ms / 500), rel=0.2) if not said else gain < 12


def test_workers_that_have_just_enough_time_get_one_more_while_a_core_is_free(case: Case) -> None:
    at_the_limit = ((BUSY_WORKER[0][0], 400), (IDLE_WORKER[1][0], 100))
    workers = dict.fromkeys((1, 2), at_the_limit)
    for count, said in ((4, "Set num_workers=3 "), (2, "Make loading cheaper")):
        readings = [*of_training(0.9, 0.3, 2), *of_machine(cores_used=1.5, count=count)]
        spans = step((DATA_WAIT, 55))
        found = case.finding(saturated_workers, spans, workers=workers, series=readings)
        assert found.remedy.startswith(said)


def test_two_remedies_have_a_bound_each(case: Case) -> None:
    readings = [*of_training(0.1, 1.0, 1), *of_machine(cores_used=1.1, count=2)]
    given = {"workers": {1: BUSY_WORKER}, "series": readings}
    found = case.finding(saturated_workers, step((DATA_WAIT, 400)), **given)
    assert found.title.endswith("having more workers speeds steps up by about " + times(2 / 1.1))
    assert "num_workers=2 " in found.remedy
    assert there(found.gain_bound) == pytest.approx(2 / 1.1, rel=0.01)
    assert "transform whole batches; that speeds steps up by at most 6." in found.remedy


def test_workers_that_wait_need_no_core_each(case: Case) -> None:
    readings = [*of_training(0.1, 0.05, 1), *of_machine(cores_used=0.2, count=2)]
    found = case.finding(
        saturated_workers, step((DATA_WAIT, 400)), workers={1: BUSY_WORKER}, series=readings
    )
    assert "having more workers speeds steps up by at most" in found.title
    assert "beyond the number of cores" in found.remedy
    assert not re.search(r"num_workers=\d", found.remedy)


def test_workers_that_wait_for_a_core_do_not_wait_for_storage(case: Case) -> None:
    waits_for_a_core = Series("main_thread_core_wait_share", 0.9, identity=worker(1))
    readings = [*of_training(0.1, 0.05, 1), *of_machine(cores_used=4.0), waits_for_a_core]
    found = case.finding(
        saturated_workers, step((DATA_WAIT, 400)), workers={1: BUSY_WORKER}, series=readings
    )
    assert found.remedy.startswith("Make loading cheaper")
    assert "storage" not in found.cause


def test_processes_that_fill_a_queue_of_the_users_are_workers(case: Case) -> None:
    get = Frame("Queue.get", STANDARD + "multiprocessing/queues.py", 103)
    waits = (*LOOP, case.line("train", 60, "images, labels = batches.get()", TRAIN), get)
    begins = Frame("BaseProcess._bootstrap", STANDARD + "multiprocessing/process.py", 314)
    makes = (begins, case.line("work", 31, "batches.put(make_batch(size))", TRAIN))
    series = [*of_training(0.1, 1.0), *of_machine(cores_used=1.1)]
    given = {"role": "helper", "series": series}
    found = case.finding(
        saturated_workers,
        step((waits, 400)),
        workers=dict.fromkeys((1, 2), ((makes, 500),)),
        **given,
    )
    assert "(train.py:60): making it in more processes speeds steps up by" in found.title
    assert "2 workers (train.py:31) busy 100 % of the time" in found.cause
    assert "DataLoader" not in found.remedy
    done = ((makes, 100), ((begins, get), 400))
    found = case.finding(idle_workers, step((waits, 400)), workers={1: done}, **given)
    assert found.remedy.startswith("Let the queue or pool hold more batches ahead (train.py:60)")
    # A child that multiprocessing has not begun makes no batches.
    for rule in (saturated_workers, idle_workers):
        assert (
            case.found(rule, step((waits, 400)), workers={1: ((makes[1:], 500),)}, **given) is None
        )


def test_what_keeps_workers_busy_is_named_by_its_kind(case: Case) -> None:
    opens = Frame("ZipFile._RealGetContents", STANDARD + "zipfile.py", 1411)
    spans = step((DATA_WAIT, 400))
    own = tuple(itertools.takewhile(lambda one: "PIL" not in one.file, BUSY_WORKER[0][0]))
    for called, mostly in (((opens,), ", mostly by opening archives or databases anew"), ((), "")):
        worker = (((*own, *called), 500),)
        cause = cause_of(case, spans, {1: worker})
        assert f"(augment.py:21) busy 100 % of the time{mostly}." in cause


def test_workers_that_may_be_saturated_are_not_idle(case: Case) -> None:
    at_the_limit = ((BUSY_WORKER[0][0], 400), (IDLE_WORKER[1][0], 100))
    spans, workers = step((DATA_WAIT, 250)), {1: at_the_limit}
    assert "keeps 1 worker (augment.py:21) busy 80 % of the time" in cause_of(case, spans, workers)
    assert case.found(idle_workers, spans, workers=workers) is None


def test_workers_that_run_or_wait_for_a_core_are_not_idle_whatever_stacks_were_read(
    case: Case,
) -> None:
    workers = {1: ((BUSY_WORKER[0][0], 250), (IDLE_WORKER[1][0], 250))}
    waits = Series("main_thread_core_wait_share", 0.6, identity=worker(1))
    for rule, used in ((idle_workers, 0.1), (saturated_workers, 0.3)):
        readings = [*of_training(0.1, used, 1), *of_machine(cores_used=4.0), waits]
        assert case.found(rule, step((DATA_WAIT, 400)), workers=workers, series=readings)


def test_a_wait_that_comes_once_is_no_loss_of_each_step(case: Case) -> None:
    steps = [((DATA_WAIT, 500),)] * 3 + [step((DATA_WAIT, 10))] * 17
    assert case.found(idle_workers, *steps, workers={1: IDLE_WORKER}, seconds=20) is None
    again = [((DATA_WAIT, 500),), *[step((DATA_WAIT, 10))] * 5]
    assert case.severity(idle_workers, *again, workers={1: IDLE_WORKER}) == WARNING


@pytest.mark.parametrize(
    ("decode_ms", "resize_ms", "all_share", "share"), [(150, 50, 40, 30), (360, 120, 96, 72)]
)
def test_what_a_generator_loads_is_found_at_the_line_of_the_loop_with_the_function_that_takes_most(
    case: Case, decode_ms: int, resize_ms: int, all_share: int, share: int
) -> None:
    batches = (*LOOP, Frame("train_epoch", TRAIN, 58), Frame("batches", DATA, 60))
    image = Frame("ImageFile.load", LIBRARY + "PIL/ImageFile.py", 293)
    decode, resize = (
        (*batches, Frame("decode", DATA, 42), image),
        (*batches, Frame("resize", DATA, 50), image),
    )
    found = case.finding(load_in_process, step((decode, decode_ms), (resize, resize_ms)))
    assert (
        f"the main thread makes its batches {all_share} % of the time (train.py:58)" in found.title
    )
    assert (
        f"See whether decode (augment.py:42, in PIL's ImageFile.load) can cost less: it takes {share} % of the time, "
        "most of it reading or drawing pictures." in found.remedy
    )


@pytest.mark.parametrize(("ms", "severity"), [(150, INFO), (280, WARNING)])
def test_steps_of_an_environment_are_a_part_of_what_the_program_is_for(
    case: Case, ms: int, severity: str
) -> None:
    steps = case.line("collect", 84, "state, reward = self.vec_env.step(action)", TRAIN)
    found = case.finding(
        load_in_process, step(((*LOOP, steps, Frame("Pendulum.step", DATA, 90)), ms))
    )
    assert found.severity == severity
    assert found.title.startswith(
        f"input-bound: steps of the environment take {ms // 5} % of the time (train.py:84)"
    )
    assert "several environments at once" in found.remedy


def test_sleep_in_a_step_of_an_environment_is_named_as_sleep(case: Case) -> None:
    steps = case.line("collect", 84, "state, reward = self.env.step(action)", TRAIN)
    world = (*LOOP, steps, Frame("Pendulum.step", DATA, 90))
    sleep = (*world, case.line("pace", 91, "time.sleep(self.dt)"))
    observe = (*world, case.line("observe", 92, "state = np.concatenate([self.angle, self.speed])"))
    spans = step((sleep, 100), (observe, 60))
    found = case.finding(overhead, spans)
    assert found.severity == WARNING
    assert found.title.startswith(
        "overhead: polling or sleeping takes 20 % of the time (augment.py:91,"
    )
    assert "steps of the environment take 12 % of the time" in case.title(load_in_process, spans)


def test_a_training_in_an_event_loop_waits_for_its_input_and_not_for_requests(case: Case) -> None:
    events = STANDARD + "asyncio/base_events.py"
    once = case.line(
        "BaseEventLoop._run_once", 1898, "events = self._selector.select(timeout)", events
    )
    run = Frame("<module>", TRAIN, 300)
    idle = (run, once, Frame("EpollSelector.select", STANDARD + "selectors.py", 468))
    asks = (
        run,
        case.line("train", 305, "async for images in feed():", TRAIN),
        Frame("feed", TRAIN, 290),
    )
    called = case.line("main", 310, "await train(model)", TRAIN)  # a step runs below it as well
    asks_below = (run, called, *asks[1:])
    backward = (run, called, *BACKWARD[2:])
    spans = ((idle, 200), (asks_below, 10), (backward, 290))
    found = case.finding(awaited_input, spans)
    assert (
        "the main thread has nothing to run 40 % of the time, and awaits its input (train.py:305)"
        in found.title
    )
    assert found.severity == CRITICAL
    assert found.gain_bound == pytest.approx(at_most_without(0.392), rel=0.05)
    assert [one.rule for one in case.findings(spans)] == [found.rule]
    # A loader's wait below an event loop is the loader's.
    handles = case.line("BaseEventLoop._run_once", 1936, "handle._run()", events)
    loader = (run, handles, *DATA_WAIT[3:])
    assert case.found(awaited_input, step((loader, 200))) is None
