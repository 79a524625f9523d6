"""Overhead: which line is named for time outside of the step, and which kind it is."""

from __future__ import annotations

import re

import pytest
from support.findingruns import (
    CALL,
    CALL_IMPL,
    DUMPS,
    ENCODE,
    LOOP,
    MEASURE,
    OWN,
    PASS,
    QUEUE_GET,
    SNAPSHOT,
    STANDARD,
    Case,
    Spans,
    at_most_without,
    gpu,
    step,
)
from support.synthetic import BACKWARD, CONV, LIBRARY, TRAIN
from support.training_stacks import DATA

from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.loops import hot_function
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.phases import synchronization
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import Frame

OPEN = (*CALL, Frame("snapshot", DATA, 13), Frame("Path.open", STANDARD + "pathlib.py", 1044))
FORK = (*SNAPSHOT, Frame("Popen._launch", STANDARD + "multiprocessing/popen_fork.py", 66))
RUN = (*SNAPSHOT, Frame("Popen.__init__", STANDARD + "subprocess.py", 1020))
EXCHANGE, GATHER = (
    (*PASS, Frame(name, LIBRARY + "torch/distributed/distributed_c10d.py", 9))
    for name in ("all_gather_object", "all_gather")
)
COPY = (*CALL, Frame("average", DATA, 41), Frame("average.<locals>.<dictcomp>", DATA, 41))
PREVIEW = (*LOOP, Frame("train_epoch", TRAIN, 70), Frame("preview", DATA, 20))
SAMPLE = (*PREVIEW, CALL_IMPL)
PICTURE = (*PREVIEW[:-1], Frame("preview", DATA, 21), Frame("save", LIBRARY + "PIL/Image.py", 2400))
WAIT = (*SNAPSHOT, QUEUE_GET)
ENGINE = (*BACKWARD, Frame("_engine_run_backward", LIBRARY + "torch/autograd/graph.py", 865))
HOOK = (*ENGINE, Frame("BackwardHook.apply", LIBRARY + "torch/utils/hooks.py", 9))
CUBE = (
    Frame("BackwardCFunction.apply", LIBRARY + "torch/autograd/function.py", 3),
    Frame("Cube.backward", DATA, 5),
)
RECOMPUTE = Frame("recompute", LIBRARY + "torch/utils/checkpoint.py", 9)
FORWARD = (CALL_IMPL, Frame("Net.forward", DATA, 53))
QUANTILE, QUANTILES, AMAX = ((*MEASURE, Frame("measure", DATA, line)) for line in (61, 62, 63))
MODULE = (*PASS, CALL_IMPL)
MODEL, EVALUATED = (
    (*LOOP, Frame("evaluate", DATA, 64), CALL_IMPL),
    (*LOOP, Frame("evaluate", DATA, 65), DUMPS),
)
JOIN = (*MEASURE, Frame("Thread.join", STANDARD + "threading.py", 1100))
ACT = (*PASS, Frame("act", DATA, 86))
BY_HAND, UPDATE = (*LOOP, Frame("backward", DATA, 70)), (*LOOP, Frame("sgd", DATA, 71))
SLEEP = (*LOOP, Frame("next_path", DATA, 72))
DRAW = (
    *LOOP,
    Frame("draw", DATA, 82),
    Frame("draw.<locals>.<listcomp>", DATA, 82),
    Frame("one", DATA, 83),
)
TRIAL = (LOOP[0], Frame("main", TRAIN, 92))
FUNCTORCH = Frame("grad_and_value_impl", LIBRARY + "torch/_functorch/eager_transforms.py", 443)
CORRECTION = Frame("correction", DATA, 45)
TRAINED = (*PASS, FUNCTORCH, Frame("loss_fn", DATA, 46), CORRECTION)
ROLLED_OUT = (*LOOP, Frame("train_epoch", TRAIN, 67), CORRECTION)
TEXTS = {
    (DATA, 41): "return {key: value.clone() for key, value in weights.items()}",
    (DATA, 52): "largest = torch.linalg.eigvalsh(laplacian)[-1]",
    (DATA, 61): "top = torch.quantile(x, 0.999)",
    (DATA, 62): "tops = [torch.quantile(x, part) for part in parts]",
    (DATA, 63): "x.amax()",
    (DATA, 72): "time.sleep(0.01)",
    (DATA, 75): "state = self.envs.step(action)",
    (DATA, 82): "return np.array([self.one() for _ in range(count)])",
    (DATA, 86): "logits = policy(torch.tensor(state))",
    (TRAIN, 92): "results = [train(trial) for trial in trials]",
}

LINES: dict[str, tuple[Spans, str, str]] = {
    "a call": (
        step((ENCODE, 150)), WARNING, "serialization takes 30 % of the time (augment.py:12): "
                                      "doing it in the background"
    ),
    "a fork": (step((FORK, 150)), WARNING, "a child process takes 30 % of the time "
                                           "(augment.py:12): starting it s"),
    "a program": (step((RUN, 150)), WARNING, "a child process takes 30 % of the time "
                                             "(augment.py:12): starting it s"),
    "a line of its own": (
        step((OWN, 150)), WARNING, "a line of relabel takes 30 % of the time (augment.py:40): "
                                   "computing it less often"
    ),
    "two lines of a function share the time: their caller's, with all of it": (
        step((ENCODE, 110), (OPEN, 40)), WARNING, "mostly serialization takes 30 % of the time "
                                                  "(augment.py:12): doing it"
    ),
    "most of it goes into one line, and the share is that of the call around it": (
        step((ENCODE, 190), (OPEN, 10)), CRITICAL, "serialization takes 40 % of the time "
                                                   "(augment.py:12): doing it"
    ),
    "of several kinds of calls none has most of the time": (
        step((ENCODE, 90), (OPEN, 60)), WARNING, "snapshot takes 30 % of the time (augment.py:12): "
                                                 "calling it less often"
    ),
    "three kinds": (step((ENCODE, 60), (OPEN, 60), (RUN, 60)), CRITICAL, "snapshot takes 36 % of the time (augment.py:12"),
    "what the rules of the input count is left to them": (
        step(((*SNAPSHOT, DUMPS), 150), ((*CALL, Frame("snapshot", DATA, 75)), 50)), WARNING,
        "serialization takes 30 % of the time (augment.py:12)",
    ),
    "no function has most of the time": (
        step(*(((*CALL, Frame(name, DATA, 20)), 50) for name in "abc")), WARNING,
        "a line of train_epoch takes 30 % of the time (train.py:66)",
    ),
    "eigenvalues within a forward pass": (
        step(((*MODULE, Frame("forward", DATA, 52)), 75)), WARNING, "decomposing matrices takes "
                                                                    "15 % of the time (train"
    ),
    "objects that ranks exchange": (
        step((EXCHANGE, 75)), WARNING, "exchanging objects between ranks takes 15 % of the time "
                                       "(train.py:61)"
    ),
    "a loop of calls of a kind": (step((COPY, 150)), WARNING, "copying objects takes 30 % of the "
                                                              "time (augment.py:41)"),
    "a model for a preview": (step((SAMPLE, 70), (PICTURE, 130)), CRITICAL, "preview takes 40 % of the time (augm"),
    "the only forward pass there is belongs to the step, whatever its function does besides": (
        ((SAMPLE, 70), (PICTURE, 130), (BACKWARD, 300)), WARNING,
        "reading or drawing pictures takes 26 % of the time (augment.py:21)",
    ),
    "a wait beside a backward pass": (step((WAIT, 200)), CRITICAL, "waiting for another thread "
                                                                   "or process takes 40 %"),
    "a known kind, without phases of a step": (((OWN, 300), (ENCODE, 200)), CRITICAL, "serialization takes 40 %"),
    "a hook of a tensor": (
        step(((*ENGINE, Frame("f", DATA, 50)), 200)), WARNING, "a line of f takes 40 % of the "
                                                               "time (augment.py:50)"
    ),
    "a hook of a module's backward pass": (
        step(((*HOOK, Frame("f", DATA, 51)), 200)), WARNING, "a line of f takes 40 % of the time "
                                                             "(augment.py:51)"
    ),
    "a hook of a module": (
        step(((*MODULE, Frame("f", DATA, 54)), 200)), WARNING, "a line of f takes 40 % of the "
                                                               "time (augment.py:54)"
    ),
    "hooks that both passes call": (
        step(((*ENGINE, Frame("f", DATA, 50)), 60), ((*MODULE, Frame("f", DATA, 50)), 60)), WARNING,
        "a line of f takes 24 % of the time (augment.py:50)"
    ),
    "statistics, but not the model's own work at the same line of a caller": (
        step((QUANTILE, 150), (MEASURE, 40)), WARNING, "statistics of values takes 30 % of the "
                                                       "time (augment.py:61)"
    ),
    "few statistics": (
        step((QUANTILE, 75), (MEASURE, 40)), INFO, "statistics of values takes 15 % of the time "
                                                   "(augment.py:61)"
    ),
    "statistics in a comprehension": (step((QUANTILES, 150)), WARNING, "statistics of values "
                                                                       "takes 30 %"),
    "what a program that only evaluates does besides": (
        ((MODEL, 350), (EVALUATED, 150)), WARNING,
        "serialization takes 30 % of the time (augment.py:65): doing it in the background speeds "
        "the program up",
    ),
    "a library that computes no model, within a pass": (
        step(((*MEASURE, DUMPS), 150)), WARNING, "serialization takes 30 % of the time "
                                                 "(augment.py:60)"
    ),
    "a line by its text": (step((ACT, 150)), WARNING, "turning lists into tensors takes 30 %"),
    "a step by hand whose lines are all known": (
        ((BY_HAND, 200), (UPDATE, 100), (OWN, 200)), WARNING, "a line of relabel takes 40 % of "
                                                              "the time (augment.py:40)"
    ),
    "torch's own backward pass tells all": (
        ((CONV, 150), (BACKWARD, 150), (OWN, 200)), WARNING, "a line of relabel takes 40 % of "
                                                             "the time (augment.py:40)"
    ),
    "sleeping between updates": (
        ((OWN, 100), (UPDATE, 200), (SLEEP, 200)), CRITICAL,
        "polling or sleeping takes 40 % of the time (augment.py:72): sparing that wait speeds",
    ),
    "what a comprehension calls, though not all of a step is known": (
        ((UPDATE, 300), (DRAW, 200)), WARNING,
        "one computes element by element 40 % of the time (augment.py:83): computing all at once "
        "speeds",
    ),
    "not the function that a pass of torch calls": (step((TRAINED, 100), (OWN, 150)), WARNING, "a line of relabel"),
    "that function where no pass calls it": (step((ROLLED_OUT, 150)), WARNING, "a line of correction"),
}  # fmt: skip


@pytest.mark.parametrize(("spans", "severity", "words"), LINES.values(), ids=LINES)
def test_the_line_below_which_time_is_lost_is_named_with_its_kind(
    case: Case, spans: Spans, severity: str, words: str
) -> None:
    found = case.finding(overhead, spans, lines=TEXTS)
    assert re.sub(", (from|in) [^)]+", "", found.title).startswith(f"overhead: {words}")
    assert found.severity == severity
    assert found.gain_bound == pytest.approx(at_most_without(found.measured), rel=0.03)


# The time is lost in small parts, at lines that none of the user's functions has in common but the
# loop's.
AROUND_THE_STEP = [((*LOOP, Frame("train_epoch", TRAIN, 100 + line)), 20) for line in range(6)]
NOTHING: dict[str, tuple[Rule, Spans]] = {
    "collectives are none": (overhead, step((GATHER, 75))),
    "a loop over calls of a kind is of that kind": (hot_function, step((COPY, 150))),
    "a line around the step": (overhead, step(*AROUND_THE_STEP)),
    "what a program without a step does all the time": (overhead, ((ENCODE, 480), (OWN, 20))),
    "a wait without a backward pass": (overhead, ((OWN, 300), (WAIT, 200))),
    "no known kind, without phases of a step": (overhead, ((OWN, 500),)),
    "backward, whatever is on its line": (overhead, ((CONV, 200), (BACKWARD, 300))),
    "a module's own forward": (overhead, step(((*PASS, *FORWARD), 200))),
    "a function of one's own": (overhead, step(((*ENGINE, *CUBE), 200))),
    "a recomputed forward pass": (overhead, step(((*ENGINE, RECOMPUTE, *FORWARD), 200))),
    "no statistics": (overhead, step((AMAX, 150), (MEASURE, 40))),
    "statistics in a comprehension are no loop": (hot_function, step((QUANTILES, 150))),
    "a model that is evaluated in a training": (overhead, step((MODEL, 100), (EVALUATED, 150))),
    "a wait within a pass": (overhead, step((JOIN, 150))),
    "a module below a line with a text": (overhead, step(((*ACT, CALL_IMPL), 150))),
    "what is unknown may be the update": (overhead, ((BY_HAND, 300), (OWN, 200))),
    "sleeping without any update, with perhaps nothing to do": (overhead, ((OWN, 300), (SLEEP, 200))),
    "a loop through trainings is none through elements in one": (
        overhead, (((*TRIAL, UPDATE[-1]), 300), ((*TRIAL, Frame("hidden", DATA, 84)), 200))
    ),
    "elements where nothing was updated may be what the program is for": (overhead, ((OWN, 300), (DRAW, 200))),
    "a function that a pass of torch calls elsewhere too": (overhead, step((TRAINED, 100), (ROLLED_OUT, 150))),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "spans"), NOTHING.values(), ids=NOTHING)
def test_what_is_no_overhead(case: Case, rule: Rule, spans: Spans) -> None:
    assert case.found(rule, spans, lines=TEXTS) is None


def test_a_share_is_that_of_the_call_and_the_function_with_most_of_it_is_named(case: Case) -> None:
    bank = (
        *CALL,
        Frame("LogMel.__call__", DATA, 20),
        Frame("filterbank", DATA, 15),
        Frame("mel_filterbank", DATA, 9),
    )
    found = case.finding(
        overhead, step((bank, 175), ((*CALL, Frame("LogMel.__call__", DATA, 19)), 35))
    )
    assert (
        "overhead: mostly mel_filterbank takes 42 % of the time (augment.py:9, from train.py:66)"
        in found.title
    )


def test_a_line_has_its_time_wherever_the_step_calls_it(case: Case) -> None:
    again = (*LOOP, Frame("train_epoch", TRAIN, 67), OWN[-1])
    found = case.finding(overhead, step((OWN, 100), (again, 60)))
    assert found.title.startswith(
        "overhead: a line of relabel takes 32 % of the time (augment.py:40, from train.py:66)"
    )
    assert found.gain_bound == pytest.approx(at_most_without(0.32), rel=0.03)


def test_a_wait_is_apart_from_what_its_line_does_besides(case: Case) -> None:
    sleep = (*CALL, case.line("f", 72, "time.sleep(0.01)"))
    found = case.finding(overhead, step((sleep, 150), ((*CALL, Frame("f", DATA, 73)), 50)))
    assert found.title.startswith(
        "overhead: polling or sleeping takes 30 % of the time (augment.py:72, from train.py:66)"
    )
    assert found.gain_bound == pytest.approx(at_most_without(0.3), rel=0.03)


@pytest.mark.parametrize(
    ("loop", "severity"), [("pairs = boxes, anchors", INFO), ("for pair in boxes:", WARNING)]
)
def test_whole_arrays_of_no_kind_are_a_remark_below_a_seventh_and_a_loop_over_elements_is_none(
    case: Case, loop: str, severity: str
) -> None:
    parts = [
        (OWN, 40),
        ((*CALL, case.line("relabel", 41, loop)), 10),
        ((*OWN, Frame("iou", DATA, 58)), 20),
    ]
    assert case.severity(overhead, step(*parts)) == severity


PERHAPS = ("a line of relabel", "turning lists into tensors", "indexing element by element")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("return zlib.compress(labels)", "compression"),
        ("rows = np.concatenate([rows[len(new):], new])", "copying whole arrays"),
        ("queue = torch.cat([queue, keys])[len(keys):]", "copying whole arrays"),
        ("order = sorted(range(len(row)), key=row.__getitem__)", "sorting in Python"),
        ("found.sort(key=score)", "sorting in Python"),
        ("order = scores.sort(dim=1)", "a line of relabel"),
        ("scores.sort()", "a line of relabel"),  # it may be an array
        ("line = ','.join(f'{value:.6f}' for value in row)", "text processing"),
        ("sigma = torch.linalg.svd(weight, full_matrices=False).S[0]", "decomposing matrices"),
        ("rows = self.store.execute(QUERY).fetchall()", "asking a database"),
        ("words = text.split()", "text processing"),
        ("name = f'{value:.3f}'", "text processing"),
        ("item = random.choice(items)", "drawing random numbers in Python"),
        ("item = np.random.choice(items)", "a line of relabel"),
        ("while not self.ready:", "polling or sleeping"),
        ("x = torch.tensor(rows)", "turning lists into tensors"),
        ("x = np.asarray(rows).mean(axis=0)", "turning lists into tensors"),
        ("window = torch.i0(taps) / torch.i0(torch.tensor(beta))", "a line of relabel"),
        ("out[i, j] = token", "indexing element by element"),
        ("np.add.at(padded, (rows, columns), values)", "ufunc.at, element by element"),
    ],
)
def test_a_call_into_c_is_known_by_the_text_of_its_line(case: Case, text: str, what: str) -> None:
    found = case.finding(overhead, step(((*CALL, case.line("relabel", 40, text)), 200)))
    assert (found.severity == CRITICAL) == (what not in PERHAPS)
    assert found.title.startswith(f"overhead: {what} takes 40 % of the time (augment.py:40,")


def test_without_a_gpu_what_brings_values_is_a_part_of_what_its_function_does(case: Case) -> None:
    quantile = (*CALL, case.line("watch", 76, "norms.append(torch.quantile(gradient, 0.5).item())"))
    spans = step((quantile, 55), ((*CALL, Frame("watch", DATA, 77)), 20))
    found = case.finding(overhead, spans)
    assert found.title.startswith(
        "overhead: mostly statistics of values takes 15 % of the time (augment.py:76, from train"
    )
    assert found.severity == WARNING
    assert case.found(synchronization, spans) is None
    # With a GPU it is a wait, and alone it is what its line says.
    assert "waits for the device for 11 %" in case.title(synchronization, spans, series=gpu(0.5))
    assert case.found(overhead, step((quantile, 75))) is None
    assert "reading values out of tensors takes 15 %" in case.title(
        synchronization, step((quantile, 75))
    )


@pytest.mark.parametrize(
    ("function", "source", "what"),
    [
        (
            "distances",
            "return (rows[:, None] - self.codes[None]).pow(2).sum(-1)",
            "differences of all pairs",
        ),
        (
            "nearest",
            "d = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)",
            "differences of all pairs",
        ),
        ("causal_mask", "return far.masked_fill(far < 0, -inf)", "making what may be constant"),
        ("attend", "return (q[:, None] - q[None]).sigmoid()", None),
        ("apply_mask", "return scores + mask", None),
        ("attend", "order = sorted(pairs, key=cost)", "sorting in Python"),
    ],
)
def test_computations_that_a_pass_could_avoid_are_named(
    case: Case, function: str, source: str, what: str | None
) -> None:
    found = case.found(overhead, step(((*MEASURE, case.line(function, 85, source)), 150)))
    assert (found and found.title.split(" takes")[0]) == (what and f"overhead: {what}")


def test_what_a_generator_makes_for_the_loop_is_its_input(case: Case) -> None:
    loop = (*LOOP, case.line("train_epoch", 79, "for images, labels in stream(photos):", TRAIN))
    made = [((*loop, Frame("stream", DATA, line)), 30) for line in (79, 80)]
    found = case.finding(overhead, step(*made))
    assert found.severity == WARNING
    assert found.title.startswith(
        "overhead: stream prepares what the loop takes 12 % of the time (train.py:79): preparing "
        "it ahead speeds"
    )
    # A part of it, by its own line; but not what a loop does that is a generator itself.
    stream = made[0][0]
    below = (*stream, Frame("mix", DATA, 81))
    assert "mix prepares what the loop takes 30 %" in case.title(overhead, step((below, 150)))
    within = tuple(
        (stream + stack[len(LOOP) + 1 :], ms) for stack, ms in step() if len(stack) > len(LOOP) + 1
    )
    torn = tuple((stack, 2) for stack, _ in within)
    assert "stream prepares what" in case.title(overhead, (*step(*made), *torn))
    assert "a line of relabel takes" in case.title(overhead, (((*stream, OWN[-1]), 150), *within))
