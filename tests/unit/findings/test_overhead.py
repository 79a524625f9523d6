"""Overhead: which line is named for time outside of the step, and which kind it is."""

from __future__ import annotations

import pytest
from support.findingruns import Case, at_most_without, gpu, step
from support.synthetic import BACKWARD, CONV, DATA_WAIT, LIBRARY, SOURCES, TRAIN
from support.training_stacks import DATA

from profd.daemon.findings.finding import CRITICAL, INFO, WARNING
from profd.daemon.findings.gpu import synchronization
from profd.daemon.findings.overhead import hot_function, overhead
from profd.daemon.store.records import Frame

STANDARD = "/usr/lib/python3.11/"
LOOP = (Frame("<module>", TRAIN, 96), Frame("main", TRAIN, 90))
CALL = (*LOOP, Frame("train_epoch", TRAIN, 66))
SNAPSHOT = (*CALL, Frame("snapshot", DATA, 12))
DUMPS = (*SNAPSHOT, Frame("dumps", STANDARD + "json/__init__.py", 231))
ENCODE = (*DUMPS, Frame("JSONEncoder.iterencode", STANDARD + "json/encoder.py", 258))
OPEN = (*CALL, Frame("snapshot", DATA, 13), Frame("Path.open", STANDARD + "pathlib.py", 1044))
FORK = (*SNAPSHOT, Frame("Popen._launch", STANDARD + "multiprocessing/popen_fork.py", 66))
RUN = (*SNAPSHOT, Frame("Popen.__init__", STANDARD + "subprocess.py", 1020))
OWN = (*CALL, Frame("relabel", DATA, 40))
C10D = LIBRARY + "torch/distributed/distributed_c10d.py"
FORMAT_STACK = Frame("format_stack", LIBRARY + "torch/fx/traceback.py", 510)


@pytest.mark.parametrize(
    ("lost", "title"),
    [
        ([(ENCODE, 150)], "overhead: serialization takes 30 % of the time (augment.py:12): doing it in the background"),
        ([(FORK, 150)], "overhead: a child process takes 30 % of the time (augment.py:12): starting it seldom"),
        ([(RUN, 150)], "overhead: a child process takes 30 % of the time (augment.py:12): starting it seldom"),
        ([(OWN, 150)], "overhead: a line of relabel takes 30 % of the time (augment.py:40): computing it less often"),
        # Two lines of a function share the time: their caller's line is named, with all of it.
        (
            [(ENCODE, 110), (OPEN, 40)],
            "overhead: mostly serialization takes 30 % of the time (train.py:66): doing it in the background",
        ),
        # Most of it goes into one line, and the rest does not count where that line is named.
        (
            [(ENCODE, 190), (OPEN, 10)],
            "overhead: serialization takes 38 % of the time (augment.py:12): doing it in the background",
        ),
        # Of several kinds of calls none has most of the time.
        ([(ENCODE, 90), (OPEN, 60)], "overhead: snapshot takes 30 % of the time (train.py:66): calling it less often"),
        (
            [(ENCODE, 60), (OPEN, 60), (RUN, 60)],
            "overhead: snapshot takes 36 % of the time (train.py:66): calling it less often",
        ),
    ],
)
def test_the_line_below_which_time_is_lost_is_named_with_its_kind(
    case: Case, lost: list[tuple[tuple[Frame, ...], int]], title: str
) -> None:
    found = case.told(overhead, step(*lost))
    assert found.title.startswith(title)
    # The gain may be all of the line that is named.
    assert found.gain_bound == pytest.approx(at_most_without(found.evidence.measures[-1].value), rel=0.03)


def test_a_share_is_that_of_the_function_that_is_named(case: Case) -> None:
    bank = (*CALL, Frame("LogMel.__call__", DATA, 20), Frame("filterbank", DATA, 15), Frame("mel_filterbank", DATA, 9))
    found = case.told(overhead, step((bank, 175), ((*CALL, Frame("LogMel.__call__", DATA, 19)), 35)))
    assert "overhead: mel_filterbank takes 35 % of the time (train.py:66): calling it less often" in found.title
    assert [round(one.value, 2) for one in found.evidence.measures] == [0.35, 0.42]


def test_a_line_has_its_time_wherever_the_step_calls_it(case: Case) -> None:
    again = (*LOOP, Frame("train_epoch", TRAIN, 67), OWN[-1])
    found = case.told(overhead, step((OWN, 100), (again, 60)))
    assert found.title.startswith("overhead: a line of relabel takes 32 % of the time (augment.py:40)")
    assert found.gain_bound == pytest.approx(at_most_without(0.32), rel=0.03)


def test_what_the_rules_of_the_input_count_is_left_to_them(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 75), "state = self.envs.step(action)")
    spans = step((DUMPS, 150), ((*CALL, Frame("snapshot", DATA, 75)), 50))
    assert "overhead: serialization takes 30 % of the time (train.py:66)" in case.told(overhead, spans).title


def test_a_wait_is_apart_from_what_its_line_does_besides(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 72), "time.sleep(0.01)")
    found = case.told(overhead, step(((*CALL, Frame("f", DATA, 72)), 150), ((*CALL, Frame("f", DATA, 73)), 50)))
    assert found.title.startswith("overhead: polling or sleeping takes 30 % of the time (train.py:66)")
    assert [round(one.value, 1) for one in found.evidence.measures] == [0.3, 0.4]


def test_where_no_function_has_most_of_the_time_the_line_is_named(case: Case) -> None:
    parts = [((*CALL, Frame(name, DATA, 20 + number)), 50) for number, name in enumerate(("a", "b", "c"))]
    found = case.told(overhead, step(*parts))
    assert "a line of train_epoch takes 30 % of the time (train.py:66)" in found.title


@pytest.mark.parametrize(("loop", "severity"), [("pairs = boxes, anchors", INFO), ("for pair in boxes:", WARNING)])
def test_whole_arrays_of_no_kind_are_a_remark_below_a_seventh_and_a_loop_over_elements_is_none(
    case: Case, monkeypatch: pytest.MonkeyPatch, loop: str, severity: str
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 41), loop)
    parts = [(OWN, 40), ((*CALL, Frame("relabel", DATA, 41)), 10), ((*OWN, Frame("iou", DATA, 58)), 20)]
    assert case.told(overhead, step(*parts)).severity == severity


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
def test_a_call_into_c_is_known_by_the_text_of_its_line(
    case: Case, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 40), text)
    found = case.told(overhead, step((OWN, 200)))
    assert (found.severity == CRITICAL) == (what not in PERHAPS)
    assert found.title.startswith(f"overhead: {what} takes 40 % of the time (augment.py:40)")


def test_eigenvalues_within_a_forward_pass_are_overhead(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 52), "largest = torch.linalg.eigvalsh(laplacian)[-1]")
    scale = (*LOOP, Frame("train_epoch", TRAIN, 61), CALL_IMPL, Frame("forward", DATA, 52))
    found = case.told(overhead, step((scale, 75)))
    assert found.severity == WARNING
    assert found.title.startswith("overhead: decomposing matrices takes 15 % of the time (train.py:61)")


def test_objects_that_ranks_exchange_are_overhead_though_collectives_are_not(case: Case) -> None:
    gather = (*LOOP, Frame("train_epoch", TRAIN, 61), Frame("all_gather_object", C10D, 9))
    found = case.told(overhead, step((gather, 75)))
    assert found.title.startswith("overhead: exchanging objects between ranks takes 15 % of the time (train.py:61)")
    alone = (*gather[:-1], Frame("all_gather", C10D, 8))
    assert case.found(overhead, step((alone, 75))) is None


def test_a_loop_over_calls_of_a_kind_is_of_that_kind(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 41), "return {key: value.clone() for key, value in weights.items()}")
    copy = (*CALL, Frame("average", DATA, 41), Frame("average.<locals>.<dictcomp>", DATA, 41))
    found = case.told(overhead, step((copy, 150)))
    assert found.title.startswith("overhead: copying objects takes 30 % of the time (augment.py:41)")
    assert case.found(hot_function, step((copy, 150))) is None


def test_a_debug_mode_is_overhead_within_the_forward_pass(case: Case) -> None:
    # What it calls by itself is of another kind: files.
    traced = (*CONV, FORMAT_STACK, Frame("checkcache", STANDARD + "linecache.py", 72))
    found = case.told(overhead, step((traced, 100)))
    assert found.severity == WARNING
    assert found.title.startswith("overhead: anomaly detection takes 20 % of the time (train.py:61): switching it off")


def test_a_line_around_the_step_is_not_named(case: Case) -> None:
    # The time is lost in small parts, at lines that none of the user's functions has in common but the loop's.
    parts = [((*LOOP, Frame("train_epoch", TRAIN, 100 + line)), 20) for line in range(6)]
    assert case.found(overhead, step(*parts)) is None


PREVIEW = (*LOOP, Frame("train_epoch", TRAIN, 70), Frame("preview", DATA, 20))
SAMPLE = (*PREVIEW, Frame("Module._call_impl", LIBRARY + "torch/nn/modules/module.py", 1773))
PICTURE = (*LOOP, PREVIEW[-2], Frame("preview", DATA, 21), Frame("save", LIBRARY + "PIL/Image.py", 2400))


def test_a_model_that_runs_for_a_preview_counts_for_it(case: Case) -> None:
    found = case.told(overhead, step((SAMPLE, 70), (PICTURE, 130)))
    assert "preview takes 40 % of the time (train.py:70)" in found.title
    # The only forward pass there is belongs to the step, whatever its function does besides.
    only = case.told(overhead, ((SAMPLE, 70), (PICTURE, 130), (BACKWARD, 300)))
    assert "takes 26 % of the time (augment.py:21)" in only.title


def test_what_a_program_without_a_step_does_all_the_time_is_its_work(case: Case) -> None:
    assert case.found(overhead, ((ENCODE, 480), (OWN, 20))) is None


def test_a_wait_counts_only_beside_a_backward_pass(case: Case) -> None:
    wait = (*SNAPSHOT, Frame("Queue.get", STANDARD + "queue.py", 171))
    found = case.told(overhead, step((wait, 200)))
    assert found.title.startswith("overhead: waiting for another thread or process takes 40 % of the time")
    assert case.found(overhead, ((OWN, 300), (wait, 200))) is None


def test_what_another_rule_explains_is_left_to_it(case: Case) -> None:
    # All of it is below one line, and most of it is a wait for a DataLoader there.
    parts = [((*DATA_WAIT[:3], Frame("relabel", DATA, line)), 30) for line in (40, 41)]
    assert case.found(overhead, step((DATA_WAIT, 200), *parts)) is None


def test_without_phases_of_a_step_only_known_kinds_count(case: Case) -> None:
    spans = ((OWN, 300), (ENCODE, 200))
    found = case.told(overhead, spans)
    assert found.title.startswith("overhead: serialization takes 40 % of the time (augment.py:12)")
    assert case.found(overhead, ((OWN, 500),)) is None


def test_backward_is_no_overhead_whatever_is_on_its_line(case: Case) -> None:
    assert case.found(overhead, ((CONV, 200), (BACKWARD, 300))) is None


ENGINE = (*BACKWARD, Frame("_engine_run_backward", LIBRARY + "torch/autograd/graph.py", 865))
CALL_IMPL = Frame("Module._call_impl", LIBRARY + "torch/nn/modules/module.py", 1773)


@pytest.mark.parametrize(
    ("lost", "place"),
    [
        ((*ENGINE, Frame("log_gradient", DATA, 50)), "augment.py:50"),
        (
            (*ENGINE, Frame("BackwardHook.apply", LIBRARY + "torch/utils/hooks.py", 9), Frame("f", DATA, 51)),
            "augment.py:51",
        ),
        ((*LOOP, Frame("train_epoch", TRAIN, 61), CALL_IMPL, Frame("check_range", DATA, 52)), "augment.py:52"),
    ],
    ids=["of a tensor", "of a module's backward pass", "of a module"],
)
def test_a_hook_of_the_user_is_no_part_of_the_pass_that_calls_it(
    case: Case, lost: tuple[Frame, ...], place: str
) -> None:
    assert f"takes 40 % of the time ({place})" in case.told(overhead, step((lost, 200))).title


@pytest.mark.parametrize(
    "stack",
    [
        (*LOOP, Frame("train_epoch", TRAIN, 61), CALL_IMPL, Frame("Net.forward", DATA, 53)),
        (
            *ENGINE,
            Frame("BackwardCFunction.apply", LIBRARY + "torch/autograd/function.py", 3),
            Frame("Cube.backward", DATA, 5),
        ),
        (
            *ENGINE,
            Frame("recompute", LIBRARY + "torch/utils/checkpoint.py", 9),
            CALL_IMPL,
            Frame("Net.forward", DATA, 53),
        ),
    ],
    ids=["a module's own forward", "a function of one's own", "a recomputed forward pass"],
)
def test_code_of_the_user_that_is_part_of_a_pass_is_no_overhead(case: Case, stack: tuple[Frame, ...]) -> None:
    assert case.found(overhead, step((stack, 200))) is None


MEASURE = (*LOOP, Frame("train_epoch", TRAIN, 61), CALL_IMPL, Frame("Observer.forward", DATA, 60))


@pytest.mark.parametrize(
    ("source", "ms", "severity"),
    [
        ("top = torch.quantile(x, 0.999)", 150, WARNING),
        ("top = torch.quantile(x, 0.999)", 75, INFO),
        ("x.amax()", 150, None),
    ],
)
def test_statistics_are_no_part_of_the_pass_that_takes_them(
    case: Case, monkeypatch: pytest.MonkeyPatch, source: str, ms: int, severity: str | None
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 61), source)
    # The model's own work beside it, at the same line of a caller, does not count.
    found = case.found(overhead, step(((*MEASURE, Frame("measure", DATA, 61)), ms), (MEASURE, 40)))
    assert (found and found.severity) == severity
    if found:
        share = f"{ms // 5} %"
        assert found.title.startswith(f"overhead: statistics of values takes {share} of the time (augment.py:61)")


def test_what_a_program_that_only_evaluates_does_besides_is_found(case: Case) -> None:
    model = (*LOOP, Frame("evaluate", DATA, 63), CALL_IMPL)
    dumps = (*LOOP, Frame("evaluate", DATA, 64), Frame("dumps", STANDARD + "json/__init__.py", 231))
    found = case.told(overhead, ((model, 350), (dumps, 150)))
    assert found.title.startswith(
        "overhead: serialization takes 30 % of the time (augment.py:64): doing it in the background"
    )
    assert "speeds the program up" in found.title
    assert case.found(overhead, step((model, 100), (dumps, 150))) is None


def test_statistics_in_a_comprehension_are_no_loop(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 62), "tops = [torch.quantile(x, part) for part in parts]")
    spans = step(((*MEASURE, Frame("measure", DATA, 62)), 150))
    assert case.found(hot_function, spans) is None
    assert "statistics of values takes 30 %" in case.told(overhead, spans).title


def test_a_library_that_computes_no_model_is_overhead_within_a_pass(case: Case) -> None:
    dumps = (*MEASURE, Frame("dumps", STANDARD + "json/__init__.py", 231))
    assert "serialization takes 30 % of the time (augment.py:60)" in case.told(overhead, step((dumps, 150))).title
    wait = (*MEASURE, Frame("Thread.join", STANDARD + "threading.py", 1100))
    assert case.found(overhead, step((wait, 150))) is None


def test_the_text_of_a_line_says_nothing_of_a_module_that_runs_below_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 86), "logits = policy(torch.tensor(state))")
    act = (*LOOP, Frame("train_epoch", TRAIN, 61), Frame("act", DATA, 86))
    assert case.found(overhead, step(((*act, CALL_IMPL), 150))) is None
    assert "turning lists into tensors takes 30 %" in case.told(overhead, step((act, 150))).title


BY_HAND = (*LOOP, Frame("backward", DATA, 70))
UPDATE = (*LOOP, Frame("sgd", DATA, 71))
SLEEP = (*LOOP, Frame("next_path", DATA, 72))


def test_a_step_by_hand_is_known_once_all_of_it_is(case: Case) -> None:
    found = case.told(overhead, ((BY_HAND, 200), (UPDATE, 100), (OWN, 200)))
    assert found.title.startswith("overhead: a line of relabel takes 40 % of the time (augment.py:40)")
    # Without an update seen, what is unknown may be it; but torch's own backward pass tells all.
    assert case.found(overhead, ((BY_HAND, 300), (OWN, 200))) is None
    assert case.told(overhead, ((CONV, 150), (BACKWARD, 150), (OWN, 200))).title == found.title


def test_sleeping_between_updates_is_a_loss_and_without_any_it_may_have_nothing_to_do(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 72), "time.sleep(0.01)")
    found = case.told(overhead, ((OWN, 100), (UPDATE, 200), (SLEEP, 200)))
    assert found.title.startswith(
        "overhead: polling or sleeping takes 40 % of the time (augment.py:72): sparing that wait speeds"
    )
    assert case.found(overhead, ((OWN, 300), (SLEEP, 200))) is None


def test_without_a_gpu_what_brings_values_is_a_part_of_what_its_function_does(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 76), "norms.append(torch.quantile(gradient, 0.5).item())")
    quantile, sort = ((*CALL, Frame("watch", DATA, line)) for line in (76, 77))
    spans = step((quantile, 55), (sort, 20))
    found = case.told(overhead, spans)
    assert found.title.startswith("overhead: mostly statistics of values takes 15 % of the time (train.py:66)")
    assert found.severity == WARNING
    assert case.found(synchronization, spans) is None
    # With a GPU it is a wait, and alone it is what its line says.
    assert "waits for the device for 11 %" in case.told(synchronization, spans, series=gpu(0.5)).title
    assert case.found(overhead, step((quantile, 75))) is None
    assert "15 % of the time goes into values" in case.told(synchronization, step((quantile, 75))).title


def test_what_a_comprehension_calls_counts_though_not_all_of_a_step_is_known(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 82), "return np.array([self.one() for _ in range(count)])")
    draw = (*LOOP, Frame("draw", DATA, 82), Frame("draw.<locals>.<listcomp>", DATA, 82), Frame("one", DATA, 83))
    found = case.told(overhead, ((UPDATE, 300), (draw, 200)))
    assert found.title.startswith(
        "overhead: one computes element by element 40 % of the time (augment.py:83): computing all at once speeds"
    )
    # What goes through trainings does not say what goes through elements in one.
    monkeypatch.setitem(SOURCES, (TRAIN, 90), "results = [train(trial) for trial in trials]")
    unknown = (*LOOP, Frame("hidden", DATA, 84))
    assert case.found(overhead, ((UPDATE, 300), (unknown, 200))) is None
    # Where nothing was updated it may be what the program is for.
    assert case.found(overhead, ((OWN, 300), (draw, 200))) is None


@pytest.mark.parametrize(
    ("function", "source", "what"),
    [
        ("distances", "return (rows[:, None] - self.codes[None]).pow(2).sum(-1)", "differences of all pairs"),
        ("nearest", "d = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)", "differences of all pairs"),
        ("causal_mask", "return far.masked_fill(far < 0, -inf)", "making what may be constant"),
        ("attend", "return (q[:, None] - q[None]).sigmoid()", None),
        ("apply_mask", "return scores + mask", None),
        ("attend", "order = sorted(pairs, key=cost)", "sorting in Python"),
    ],
)
def test_what_a_pass_need_not_compute_so_is_told(
    case: Case, monkeypatch: pytest.MonkeyPatch, function: str, source: str, what: str | None
) -> None:
    monkeypatch.setitem(SOURCES, (DATA, 85), source)
    found = case.found(overhead, step(((*MEASURE, Frame(function, DATA, 85)), 150)))
    assert (found and found.title.split(" takes")[0]) == (what and f"overhead: {what}")


STREAM = (*LOOP, Frame("train_epoch", TRAIN, 79), Frame("stream", DATA, 79))


def test_what_a_generator_makes_for_the_loop_is_its_input(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, (TRAIN, 79), "for images, labels in stream(photos):")
    made = [((*STREAM[:-1], Frame("stream", DATA, line)), 30) for line in (79, 80)]
    found = case.told(overhead, step(*made))
    assert found.severity == WARNING
    assert found.title.startswith(
        "overhead: stream prepares what the loop takes 12 % of the time (train.py:79): preparing it ahead speeds"
    )
    # A part of it, by its own line; but not what a loop does that is a generator itself.
    below = (*STREAM, Frame("mix", DATA, 81))
    assert "mix prepares what the loop takes 30 %" in case.told(overhead, step((below, 150))).title
    within = tuple((STREAM + stack[len(LOOP) + 1 :], ms) for stack, ms in step() if len(stack) > len(LOOP) + 1)
    torn = tuple((stack, 2) for stack, _ in within)
    assert "stream prepares what" in case.told(overhead, (*step(*made), *torn)).title
    own = (*STREAM, Frame("relabel", DATA, 40))
    assert "a line of relabel takes" in case.told(overhead, ((own, 150), *within)).title


def test_a_function_that_a_pass_of_torch_calls_is_a_model_elsewhere_too(case: Case) -> None:
    functorch = Frame("grad_and_value_impl", LIBRARY + "torch/_functorch/eager_transforms.py", 443)
    correction = Frame("correction", DATA, 45)
    trained = (*LOOP, Frame("train_epoch", TRAIN, 61), functorch, Frame("loss_fn", DATA, 46), correction)
    rolled_out = (*LOOP, Frame("train_epoch", TRAIN, 67), correction)
    assert "relabel" in case.told(overhead, step((trained, 100), (OWN, 150))).title
    assert case.found(overhead, step((trained, 100), (rolled_out, 150))) is None
    # Where no pass calls it, it is none.
    assert "correction" in case.told(overhead, step((rolled_out, 150))).title
