from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from support.findingruns import (
    BESIDE_TID,
    BUSY_WORKER,
    CALL_IMPL,
    HEALTHY,
    LOAD_IN_PROCESS,
    ROOT,
    STANDARD,
    Case,
    Series,
    Spans,
    at_most_without,
    cores,
    gpu,
    step,
)
from support.present import there
from support.synthetic import MAIN, MAIN_TID, STARTED_NS, recording
from support.training_stacks import (
    BACKWARD,
    CONV,
    DATA_WAIT,
    LIBRARY,
    OPTIMIZER,
    SYNCHRONIZE,
    TRAIN,
)

from profd.daemon.findings.catalog import RULES
from profd.daemon.findings.cpu import idle_cores, interpreter_lock
from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.loading import load_in_process
from profd.daemon.findings.loops import hot_function
from profd.daemon.findings.phases import (
    anomaly_detection,
    checkpoints,
    evaluations,
    graphs_again,
    logging_stalls,
    synchronization,
    unfused_optimizer,
)
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import Frame

SAVE = (*ROOT, Frame("save", LIBRARY + "torch/serialization.py", 944))
LOG = (*ROOT, Frame("Logger.info", STANDARD + "logging/__init__.py", 1489))
EVALUATE = (*ROOT, Frame("evaluate", TRAIN, 120), CALL_IMPL)
LOOP, ADD = (*ROOT, Frame("spread", TRAIN, 77)), (*ROOT, Frame("spread", TRAIN, 78))


@pytest.mark.parametrize(
    ("rule", "stack", "label"),
    [
        (checkpoints, SAVE, "checkpoints: saving takes 30 %"),
        (logging_stalls, LOG, "logging: writing logs, metrics or progress takes 30 %"),
        (evaluations, EVALUATE, "evaluation: evaluating takes 30 %"),
        (synchronization, SYNCHRONIZE, "synchronization: reading values out of tensors takes 30 %"),
    ],
)
def test_what_stops_the_steps_is_found_by_its_own_rule_alone(
    case: Case, rule: Rule, stack: tuple[Frame, ...], label: str
) -> None:
    found = case.finding(rule, step((stack, 150)))
    assert found.title.startswith(label)
    assert found.severity == WARNING
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)
    assert there(found.evidence.line).file == TRAIN
    assert [one for one in RULES if case.found(one, step((stack, 150))) is not None] == [rule]


def test_batches_of_an_evaluation_count_for_it_and_not_for_the_input(case: Case) -> None:
    loading = (*ROOT, Frame("evaluate", TRAIN, 121), *LOAD_IN_PROCESS[3:])
    spans = step((EVALUATE, 60), (loading, 90), (LOAD_IN_PROCESS, 60))
    found = case.finding(evaluations, spans)
    assert found.title.startswith(
        "evaluation: evaluating takes 30 % of the time (train.py:121, from train.py:59)"
    )
    assert found.evidence.selection.phase is None
    # It is no loss while it is moderate.
    assert case.severity(evaluations, step((EVALUATE, 90))) == INFO
    assert "loads data 12 % of the time (train.py:58)" in case.title(load_in_process, spans)


def test_a_program_that_only_evaluates_has_no_evaluation_too_much(case: Case) -> None:
    assert case.found(evaluations, ((EVALUATE, 300), (LOG, 200))) is None
    assert case.title(logging_stalls, ((EVALUATE, 300), (LOG, 200))).endswith(
        "doing it less often speeds the program up by at most 1.9\N{MULTIPLICATION SIGN}"
    )


def test_a_wait_for_an_idle_gpu_is_lost_as_far_as_the_gpu_allows(case: Case) -> None:
    found = case.finding(synchronization, step((SYNCHRONIZE, 350)), series=gpu(0.5))
    assert "waits for the device for 70 %" in found.title
    assert found.gain_bound == pytest.approx(2.0)


def test_a_function_that_loops_in_python_is_found_and_so_is_its_comprehension(case: Case) -> None:
    found = case.finding(hot_function, step((LOOP, 50), (ADD, 200)))
    assert found.severity == CRITICAL
    assert (
        "spread loops in Python for 50 % of the time (train.py:78, from train.py:59)" in found.title
    )
    inner = (*LOOP, Frame("spread.<locals>.<listcomp>", TRAIN, 77))
    title = case.title(hot_function, step((LOOP, 100), (inner, 100)))
    assert "spread loops in Python for 40 % of the time (train.py:77, from train.py:59)" in title


def test_where_a_comprehension_is_little_of_a_function_its_line_alone_counts(case: Case) -> None:
    work = (*ROOT, Frame("cell", TRAIN, 80))
    line = (*ROOT, case.line("cell", 81, "i, f, o = (sigmoid(part) for part in parts)", TRAIN))
    title = case.title(hot_function, step((work, 200), (line, 60)))
    assert "cell loops in Python for 12 % of the time (train.py:81)" in title
    # Where it is much of the function, what the function makes of it counts as well.
    assert "cell loops in Python for 40 % of the time" in case.title(
        hot_function, step((work, 110), (line, 90))
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ranks = [rank(one) for one in (preds, target)]", "overhead"),
        ("for kind, one in [('weights', weights), ('moments', moments)]:", "overhead"),
        ("ranks = [rank(one) for one in batch if one in (1, 2)]", "hot-function"),
        ("ranks = [rank(one) for pair in (preds, target) for one in pair]", "hot-function"),
        ("while left in (1, 2):", "hot-function"),
    ],
)
def test_a_loop_over_what_is_listed_in_its_line_goes_through_no_elements(
    case: Case, text: str, rule: str
) -> None:
    line = (*ROOT, case.line("correlate", 84, text, TRAIN))
    first = case.findings(step((line, 200)))[0]
    assert (first.rule, there(first.evidence.line).line) == (rule, 84)


def test_an_update_by_hand_goes_through_tensors_and_not_through_elements(case: Case) -> None:
    adapt = case.line(
        "adapt", 82, "fast = [w - INNER_LR * g for w, g in zip(fast, gradients)]", TRAIN
    )
    assert case.found(hot_function, step(((*ROOT, adapt), 200))) is None


def test_time_that_another_rule_tells_is_not_blamed_on_the_loop_around_it(case: Case) -> None:
    spans = step(((*ROOT[:-1], Frame("train_epoch", TRAIN, 77)), 10), (SYNCHRONIZE, 200))
    assert [case.found(rule, spans) is None for rule in (hot_function, synchronization)] == [
        True,
        False,
    ]


def test_a_healthy_run_has_no_findings_nor_have_workers_that_keep_up(case: Case) -> None:
    assert case.findings(HEALTHY) == ()
    assert case.findings(step((DATA_WAIT, 15)), workers={1: BUSY_WORKER}) == ()


def test_a_phase_that_may_take_less_is_not_warned_of(case: Case) -> None:
    found = case.finding(checkpoints, step((SAVE, 54)), seconds=10)
    assert found.evidence.measures[0].value > 0.1
    assert found.severity == INFO


COMPUTES: Spans = (
    ((Frame("Thread.run", STANDARD + "threading.py", 982), Frame("spread", TRAIN, 78)), 500),
)


def turns(
    waits: float | Sequence[float] = 0.0,
    holds: float = 0.0,
    *,
    cpu: float = 1.0,
    hand_overs: float = 0.0,
    core_wait: float = 0.0,
    switches: tuple[float, float] = (0.0, 0.0),
) -> list[Series]:
    """Return the readings of a main thread beside another one.

    It ``waits`` for the lock, which the other one ``holds`` and computes for the time ``cpu``.
    ``switches`` are those of the main thread, voluntary and not.
    """
    return [
        Series("main_thread_lock_wait_share", *(waits if isinstance(waits, Sequence) else [waits])),
        Series("lock_held_share", holds, tid=BESIDE_TID),
        Series("cpu_cores", cpu, tid=BESIDE_TID),
        Series("lock_hand_overs_per_s", hand_overs),
        Series("main_thread_core_wait_share", core_wait),
        Series("main_thread_voluntary_switches_per_s", switches[0]),
        Series("main_thread_involuntary_switches_per_s", switches[1]),
    ]


def also(holds: float, *, cpu: float = 1.0) -> list[Series]:
    """Return the readings of one more thread that holds the lock."""
    other = MAIN_TID + 2
    return [Series("lock_held_share", holds, tid=other), Series("cpu_cores", cpu, tid=other)]


def test_a_thread_that_runs_python_keeps_the_main_thread_waiting(case: Case) -> None:
    case.line("spread", 78, "total += weight", TRAIN)
    found = case.finding(interpreter_lock, HEALTHY, beside=COMPUTES, series=turns(0.48, 0.45))
    assert found.severity == CRITICAL
    assert (
        "waits 48 % of the time for Python's lock, held by thread beside (train.py:78)"
        in found.title
    )
    assert found.gain_bound == pytest.approx(at_most_without(0.48), rel=0.05)
    assert found.evidence.selection.thread == "beside"


def test_a_thread_is_named_at_work_and_not_asleep(case: Case) -> None:
    case.line("draw", 141, "time.sleep(0.0005)", TRAIN)
    run = (Frame("Thread.run", STANDARD + "threading.py", 982),)
    sleeps = ((*run, Frame("draw", TRAIN, 140)), 100), ((*run, Frame("draw", TRAIN, 141)), 400)
    often = turns(0.0, 0.1, hand_overs=500, core_wait=0.2, switches=(300, 200))
    title = case.title(interpreter_lock, HEALTHY, beside=sleeps, series=often)
    assert "the main thread and thread beside (train.py:140) give way to each other" in title


SECOND = recording(MAIN, STARTED_NS, [(MAIN_TID + 2, "second", False, COMPUTES)])


# What was read of the same small steps beside threads that differ in kind, and how many times as
# fast the steps were while the thread slept: each ran and slept by turns of 1.5 s.
KNOWN: dict[str, tuple[list[Series], float]] = {
    "a decoder in Python": (turns(0.317, 0.4, cpu=0.322, hand_overs=46, core_wait=0.194, switches=(107, 130)), 1.67),
    "two of them": (
        [*turns([0.2, 0.1, 0.3, 0.1] * 8, 0.3, cpu=0.199, hand_overs=36, core_wait=0.184, switches=(79, 190)), *also(0.3, cpu=0.175)], 1.81
    ),
    "short calls of C that release the lock": (
        turns(0.025, 0.125, cpu=0.178, hand_overs=98, core_wait=0.435, switches=(14, 187)), 1.36
    ),
    "long calls of C that keep the lock": (
        turns([0.2, 0.1, 0.1, 0.1, 0.3] * 6, 0.22, cpu=0.182, hand_overs=25, core_wait=0.149, switches=(47, 160)), 1.32
    ),
    "lines of a log by the score": (turns(0.0, 0.07, cpu=0.07, hand_overs=162, core_wait=0.137, switches=(416, 310)), 1.12),
    "a line of a log at a time": (turns(0.0, 0.05, cpu=0.062, hand_overs=745, core_wait=0.167, switches=(3, 1240)), 1.15),
}  # fmt: skip


def test_the_gain_is_within_the_bound_and_the_bound_near_to_it(case: Case) -> None:
    bounds = {}
    for name, (read, gain) in KNOWN.items():
        found = case.finding(interpreter_lock, HEALTHY, beside=COMPUTES, series=read, more=[SECOND])
        assert found.evidence.measures[0].value == pytest.approx(1 - 1 / gain, abs=0.09), name
        bounds[name] = there(found.gain_bound) / gain
    assert all(bound >= 1 for bound in bounds.values()), bounds
    assert statistics.median(bounds.values()) <= 1.5, bounds


def test_waits_behind_others_for_a_core_are_no_waits_for_the_lock(case: Case) -> None:
    """The other thread computes in C beside a main thread that stands behind other processes."""
    read = turns(0.0, 0.01, hand_overs=2, core_wait=0.5, switches=(2, 200))
    assert case.found(interpreter_lock, HEALTHY, beside=COMPUTES, series=read) is None


def test_of_two_threads_that_hold_it_alike_neither_is_named_alone(case: Case) -> None:
    read = [*turns(0.6, 0.5), *also(0.4)]
    title = case.title(interpreter_lock, HEALTHY, beside=COMPUTES, series=read, more=[SECOND])
    assert "held by thread beside and 1 other (train.py:78)" in title


# A thread that polls, by the innermost of the user's lines that the thread or its event loop runs.
RUN = (Frame("Thread.run", STANDARD + "threading.py", 982),)
EVENT_LOOP = (
    Frame("main", TRAIN, 145),
    Frame("run", STANDARD + "asyncio/runners.py", 190),
    Frame("BaseEventLoop._run_once", STANDARD + "asyncio/base_events.py", 1922),
)
TRIO = (Frame("main", TRAIN, 145), Frame("unrolled_run", LIBRARY + "trio/_core/_run.py", 2800))
UVLOOP = EVENT_LOOP[:2]
POLLS = {
    "asyncio.sleep(0)": (EVENT_LOOP, "await asyncio.sleep(0)"),
    "asyncio.sleep(0.001)": (EVENT_LOOP, "await asyncio.sleep(0.001)"),
    "uvloop": (UVLOOP, "await asyncio.sleep(0)"),
    "trio": (TRIO, "await trio.sleep(0)"),
    "anyio": ((*EVENT_LOOP, Frame("run", LIBRARY + "anyio/_backends/_asyncio.py", 90)), "await anyio.sleep(0)"),
    "a queue": (RUN, "item = inbox.get_nowait()"),
    "the length of a queue": (RUN, "for _ in range(self.inbox.qsize()):"),
    "an event": (RUN, "while not event.is_set():"),
    "a future": (RUN, "while not future.done():"),
    "time.sleep(0)": (RUN, "time.sleep(0)"),
}  # fmt: skip


@pytest.mark.parametrize(("around", "text"), POLLS.values(), ids=POLLS)
def test_a_thread_that_polls_is_said_to_with_its_own_line(
    case: Case, around: tuple[Frame, ...], text: str
) -> None:
    polls = case.line("wait_for_result", 57, text, TRAIN)
    spans = ((around, 400), ((*around, polls), 100))
    title = case.title(
        interpreter_lock, HEALTHY, beside=spans, series=turns(0.3, 0.4, hand_overs=70)
    )
    assert "polling by thread beside (train.py:57) holds the main thread up for 30 %" in title


def test_a_coroutine_that_computes_does_not_poll(case: Case) -> None:
    encodes = case.line("publish", 57, "await socket.send(json.dumps(rows))", TRAIN)
    spans = ((EVENT_LOOP, 100), ((*EVENT_LOOP, encodes), 400))
    title = case.title(interpreter_lock, HEALTHY, beside=spans, series=turns(0.3, 0.4))
    assert "held by thread beside (train.py:57)" in title


def test_a_main_thread_with_hardly_any_time_left_gets_no_bound(case: Case) -> None:
    found = case.finding(interpreter_lock, HEALTHY, beside=COMPUTES, series=turns(0.97, 0.97))
    assert found.severity == CRITICAL
    assert found.title.endswith("not waiting speeds steps up many times")
    assert found.gain_bound is None


def machine(count: int, *, used: float, process: float = 1.0) -> list[Series]:
    """Return the series of so many cores, some of them used, with a main thread that uses one."""
    return [
        *cores(count),
        Series("host_cpu_share", used, identity=None),
        Series("cpu_cores", process),
        Series("cpu_cores", 1.0, tid=MAIN_TID),
    ]


def test_idle_cores_beside_a_model_in_one_thread_are_a_finding(case: Case) -> None:
    found = case.finding(idle_cores, HEALTHY, series=machine(4, used=0.26))
    assert found.severity == CRITICAL
    assert "in one thread (train.py:61), beside idle cores: using them speeds" in found.title
    assert "beside 3 idle cores" in found.cause
    assert "OMP_NUM_THREADS=4" in found.remedy
    # 96 % of a step are in forward and backward, each of them long.
    assert found.gain_bound == pytest.approx(1 / (1 - 0.96 * 3 / 4), rel=0.03)


FUSED = (*OPTIMIZER[:-1], Frame("_fused_adam", LIBRARY + "torch/optim/adam.py", 790))
OWN_NETWORK = (  # "loss" and "backward" of no torch
    ((*ROOT, Frame("loss", TRAIN, 17), Frame("Value.__init__", TRAIN, 10)), 300),
    ((*ROOT, Frame("Value.backward", TRAIN, 65)), 200),
)
FOREACH = (*OPTIMIZER[:-1], Frame("_multi_tensor_adam", LIBRARY + "torch/optim/adam.py", 590))


@pytest.mark.parametrize(
    ("stack", "series", "said"),
    [
        (OPTIMIZER, [], "tensor by tensor takes 40 %"),
        (FOREACH, gpu(0.5), "operation by operation takes 38 %"),
    ],
    ids=["tensor by tensor", "torch's default on a GPU"],
)
def test_weights_that_are_not_updated_at_once_are_found_with_their_line(
    case: Case, stack: tuple[Frame, ...], series: list[Series], said: str
) -> None:
    found = case.finding(unfused_optimizer, step((stack, 190)), series=series)
    assert found.severity == WARNING
    assert found.title.startswith(f"optimizer: updating the weights {said} of a step (train.py:64)")
    assert found.gain_bound == pytest.approx(
        at_most_without(found.evidence.measures[0].value), rel=0.03
    )
    assert "fused=True" in found.remedy


@pytest.mark.parametrize(
    ("one_by_one_ms", "besides_ms"), [(190, 0), (225, 30)], ids=["mild", "grave"]
)
def test_a_slow_optimizer_comes_before_larger_batches(
    case: Case, one_by_one_ms: int, besides_ms: int
) -> None:
    # What is no update of weights is half of a step for sure only where it is added to that.
    findings = case.findings(step((OPTIMIZER, one_by_one_ms), (FUSED, besides_ms)))
    assert [one.rule for one in findings] == ["unfused-optimizer", "small-batches"]


NOTHING: dict[str, tuple[Rule, Spans, dict[str, Any]]] = {
    "a wait for a busy GPU": (synchronization, step((SYNCHRONIZE, 350)), {"series": gpu(0.98)}),
    "a function that only calls long operations": (hot_function, step((ADD, 200)), {}),
    "nobody waits for the lock": (interpreter_lock, HEALTHY, {"beside": COMPUTES, "series": turns(0.0, 0.01)}),
    "the main thread lacks a core": (interpreter_lock, HEALTHY, {"beside": COMPUTES, "series": turns(core_wait=0.5)}),
    "nobody looked at the lock": (interpreter_lock, HEALTHY, {"beside": COMPUTES, "series": turns(0.5, 0.5)[1:]}),
    "nobody else holds it": (interpreter_lock, HEALTHY, {"beside": COMPUTES, "series": turns(0.5)}),
    "it waits for data": (interpreter_lock, step((DATA_WAIT, 490)), {"beside": COMPUTES, "series": turns(0.5, 0.5)}),
    "a fused optimizer": (unfused_optimizer, step((FUSED, 190)), {}),
    "a short one": (unfused_optimizer, HEALTHY, {}),
    "torch's default on a GPU, without one": (unfused_optimizer, step((FOREACH, 190)), {}),
    "no core is idle": (idle_cores, HEALTHY, {"series": machine(4, used=0.95)}),
    "it has several threads": (idle_cores, HEALTHY, {"series": machine(4, used=0.5, process=2.0)}),
    "it computes on a GPU": (idle_cores, HEALTHY, {"series": [*machine(4, used=0.26), gpu(0.9)[1]]}),
    "a network in pure Python": (idle_cores, OWN_NETWORK, {"series": machine(4, used=0.26)}),
    "operations too short for several threads": (
        idle_cores, ((CONV, 25), (BACKWARD, 25)) * 10, {"series": machine(4, used=0.26)}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "spans", "more"), NOTHING.values(), ids=NOTHING)
def test_a_rule_finds_nothing(case: Case, rule: Rule, spans: Spans, more: dict[str, Any]) -> None:
    assert case.found(rule, spans, **more) is None


@pytest.mark.parametrize("sample_ms", [10, 25])
def test_short_operations_that_samples_happen_to_find_again_are_not_long(
    case: Case, sample_ms: int
) -> None:
    """Of a step that takes less time than from one sample to the next, each finds backward in half
    of the cases.
    """
    chance = random.Random(3)
    steps = [
        tuple(
            (stack, sample_ms * sum(1 for _ in row))
            for stack, row in itertools.groupby(
                chance.choice((CONV, BACKWARD)) for _ in range(500 // sample_ms)
            )
        )
        for _ in range(30)
    ]
    assert case.found(idle_cores, *steps, series=machine(4, used=0.26), sample_ms=sample_ms) is None


def test_anomaly_detection_is_found_by_a_few_stacks_and_has_no_bound(case: Case) -> None:
    kept = (*CONV, Frame("format_stack", LIBRARY + "torch/fx/traceback.py", 503))
    read = (*kept, Frame("checkcache", STANDARD + "linecache.py", 72))
    found = case.finding(anomaly_detection, step((read, 10)))
    assert (found.severity, found.gain_bound) == (WARNING, None)
    assert found.sentence.startswith("anomaly detection of autograd is on (train.py:63)")
    assert case.found(anomaly_detection, HEALTHY) is None


@pytest.mark.parametrize("text", ["loss.backward(retain_graph=True)", "loss.backward()"])
@pytest.mark.parametrize(("forward_ms", "backward_ms"), [(60, 430), (160, 330)])
def test_a_kept_graph_is_gone_through_again_if_backward_takes_longer_than_it_usually_does(
    case: Case, text: str, forward_ms: int, backward_ms: int
) -> None:
    line = case.line("train_epoch", 72, text, TRAIN)
    again = (*ROOT[:2], line, *BACKWARD[-2:])
    found = case.found(graphs_again, step((CONV, forward_ms), (again, backward_ms)))
    assert (found is not None) == ("retain_graph" in text and forward_ms < 100)
    if found:
        assert (found.severity, found.evidence.line and found.evidence.line.line) == (CRITICAL, 72)
        # One backward pass takes at least as long as its forward pass.
        assert found.gain_bound == pytest.approx(500 / 130, abs=0.6)
