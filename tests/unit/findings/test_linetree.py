"""Calls: a finding has the share of the call that its remedy spares, and names what costs in it."""

from __future__ import annotations

import pytest
from support.findingruns import (
    CALL,
    CALL_IMPL,
    DUMPS,
    LOOP,
    MEASURE,
    PASS,
    Case,
    Spans,
    at_most_without,
    gpu,
    step,
)
from support.synthetic import BACKWARD, CONV, LIBRARY, TRAIN
from support.training_stacks import DATA, DATA_WAIT, OPTIMIZER

from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.findings.overhead import overhead
from profd.daemon.findings.phases import (
    checkpoints,
    evaluations,
    inference,
    logging_stalls,
    own_optimizer,
    small_batches,
    synchronization,
)
from profd.daemon.findings.rule import Rule
from profd.daemon.store.records import Frame

FIT = (*LOOP, Frame("Trainer.fit", LIBRARY + "lightning/pytorch/trainer/trainer.py", 560))
TORCH_SAVE = Frame("save", LIBRARY + "torch/serialization.py", 944)
SAVE = (*CALL, Frame("keep", DATA, 101), TORCH_SAVE)
SYNC = (*CALL, Frame("keep", DATA, 102))
CALLED_SAVE, CALLED_SYNC = ((*FIT, *stack[len(CALL) :]) for stack in (SAVE, SYNC))
EVALUATE = (*CALL, Frame("keep", DATA, 104), Frame("evaluate", DATA, 64), CALL_IMPL)
SCORE = (*CALL, Frame("keep", DATA, 105), CALL_IMPL)
LOADS = (*CALL, Frame("keep", DATA, 106), *DATA_WAIT[3:])
AROUND = (*LOOP, Frame("train_epoch", TRAIN, 67), TORCH_SAVE)
EVERY = (*LOOP, Frame("save_all", DATA, 107), TORCH_SAVE)
PRINT = (*CALL, Frame("report", DATA, 103))
ITEM = (*CALL, Frame("report", DATA, 108))
LINES = {
    (DATA, 102): "os.fsync(file)",
    (DATA, 103): "print(step)",
    (DATA, 108): "rows.append(loss.item())",
}
KEEP = "(augment.py:101, from train.py:66)"


@pytest.mark.parametrize(
    ("rule", "spans", "words"),
    [
        (checkpoints, step((SAVE, 170), (SYNC, 70)), f"saving takes 48 % of the time {KEEP}"),
        (checkpoints, step((SAVE, 100), (SYNC, 140)), "saving takes 20 % of the time (augment.py:101)"),
        (checkpoints, step((SAVE, 150), (EVALUATE, 100)), f"saving takes 30 % of the time {KEEP}"),
        (checkpoints, step((SAVE, 150), (LOADS, 100)), f"saving takes 30 % of the time {KEEP}"),
        (checkpoints, step((SAVE, 150), (SCORE, 50)), f"saving takes 40 % of the time {KEEP}"),
        (checkpoints, step((SAVE, 110), (AROUND, 90)), f"saving takes 40 % of the time {KEEP}"),
        (checkpoints, step((CALLED_SAVE, 170), (CALLED_SYNC, 70)), "saving takes 48 % of the time (augment.py:101)"),
        (logging_stalls, step((PRINT, 155), (ITEM, 90)), "writing logs, metrics or progress takes 49 % of the time (augment.py:103, from train.py:66)"),
    ],
    ids=[
        "the call, with what it does besides", "what is less than half of its call, alone", "an evaluation is spared by another remedy",
        "and so is a wait for data", "the pass of another model", "several calls",
        "a function that a library calls", "values that are brought to be reported",
    ],
)  # fmt: skip
def test_a_share_is_that_of_the_outermost_call_with_more_than_half_of_its_time_on_the_cause(
    case: Case, rule: Rule, spans: Spans, words: str
) -> None:
    found = case.finding(rule, spans, lines=LINES)
    assert found.sentence.startswith(words)
    assert found.gain_bound == pytest.approx(at_most_without(found.measured), rel=0.06)


def test_no_call_has_the_step_in_it_however_short_that_is(case: Case) -> None:
    title = case.title(checkpoints, step((EVERY, 465)))
    assert title.startswith("checkpoints: saving takes 93 % of the time (augment.py:107)")


def test_a_call_counts_once_with_what_is_brought_to_python_in_it(case: Case) -> None:
    spans = step(((*CALL, Frame("report", DATA, 109)), 155), (ITEM, 90))
    assert "takes 49 % of the time (augment.py:109, from" in case.title(
        overhead, spans, lines=LINES
    )
    assert case.found(synchronization, spans, lines=LINES) is None


def test_of_a_wait_for_a_gpu_the_share_is_that_of_the_wait_alone(case: Case) -> None:
    spans = step((ITEM, 155), ((*CALL, Frame("report", DATA, 109)), 90))
    found = case.finding(synchronization, spans, lines=LINES, series=gpu(0.2))
    assert found.sentence.startswith("the main thread waits for the device for 31 %")


PROBE = Frame("LogisticRegression.fit", LIBRARY + "sklearn/linear_model/_logistic.py", 9)


def test_a_call_below_the_line_that_is_named_is_not_said_to_lead_to_it(case: Case) -> None:
    case.line("Observer.forward", 60, "norm = torch.linalg.svd(x).S[0]")
    assert " takes 20 % of the time (train.py:61): " in case.title(overhead, step((MEASURE, 100)))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("getattr(one, hook)(self)", "(augment.py:131, from train.py:66)"),
        ("hook(self)", "(augment.py:131, from train.py:66)"),
        ("one.on_batch_end(self)", "(augment.py:120, from train.py:66)"),
        ("", "(augment.py:120, from train.py:66)"),
    ],
)
def test_a_line_that_does_not_name_what_it_calls_is_not_where_the_time_goes(
    case: Case, text: str, place: str
) -> None:
    """Three lines of a callback take a third of its time each, and no line most of it."""
    hooks = (*CALL, case.line("Trainer.call_hooks", 120, text))
    lines = [case.line("Keeper.on_batch_end", 130 + number, "x = y") for number in range(3)]
    spent = [((*hooks, one), 60 + 10 * (number == 1)) for number, one in enumerate(lines)]
    assert f" of the time {place}: " in case.title(overhead, step(*spent))


TIMM = Frame("ModelEmaV2.update", LIBRARY + "timm/utils/model_ema.py", 101)
AVERAGE = (
    *CALL,
    Frame("update_ema", DATA, 110),
    Frame("update_ema.<locals>.<listcomp>", DATA, 110),
)
CLIP = (*CALL, Frame("clip_gradients", DATA, 111))
NORM = (
    *CALL,
    Frame("clip_gradients", DATA, 112),
    Frame("Tensor.norm", LIBRARY + "torch/_tensor.py", 9),
)
OWN = (*OPTIMIZER[:-2], Frame("Lion.step", DATA, 113))
LIBRARY_CLIPS = (*CALL, Frame("clip_grad_norm_", LIBRARY + "torch/nn/utils/clip_grad.py", 9))
BY_HAND = (*LOOP, Frame("adam", DATA, 114), Frame("Tensor.norm", LIBRARY + "torch/_tensor.py", 9))


@pytest.mark.parametrize(
    ("stacks", "words"),
    [
        ((AVERAGE,), "a line of update_ema takes 30 % of the time (augment.py:110, from train.py:66)"),
        (((*CALL, TIMM),), "a line of train_epoch takes 30 % of the time (train.py:66, in timm's ModelEmaV2.update)"),
        (((*CALL, PROBE),), "a line of train_epoch takes 30 % of the time (train.py:66, in sklearn's LogisticRegression.fit)"),
        ((CLIP, NORM), "clip_gradients takes 62 % of the time (augment.py:112, from train.py:66)"),
        ((LIBRARY_CLIPS,), None),
        ((OPTIMIZER,), None),
        ((OPTIMIZER[:3],), None),
        ((OWN,), None),
    ],
    ids=["an average by hand", "by a library", "a fit of another model", "clipping by hand", "by torch", "torch's optimizer", "its line", "one's own"],
)  # fmt: skip
def test_what_changes_weights_beside_the_optimizers_step_is_named_at_its_line(
    case: Case, stacks: tuple[tuple[Frame, ...], ...], words: str | None
) -> None:
    case.line("update_ema", 110, "return [a.lerp_(p, 0.1) for a, p in zip(average, weights)]")
    spans = step(
        *((stack, length_ms) for stack, length_ms in zip(stacks, (150, 160), strict=False))
    )
    found = case.found(overhead, spans)
    assert (found and found.sentence[: len(words or "")]) == words
    assert "torch._foreach" in found.remedy if found and len(stacks) > 1 else True
    # Larger batches do not help against it: they do against what the library does at each step.
    is_by_library = stacks[0] in (LIBRARY_CLIPS, OPTIMIZER)
    assert (case.found(small_batches, spans) is not None) == is_by_library


def test_boosted_trees_are_fitted_by_their_own_step_unless_torch_makes_the_steps(
    case: Case,
) -> None:
    train = (*CALL, Frame("train", LIBRARY + "lightgbm/engine.py", 322))
    boost = (*train, Frame("Booster.update", LIBRARY + "lightgbm/basic.py", 4155))
    assert case.found(overhead, ((boost, 450), (train, 50))) is None
    assert "in lightgbm's train" in case.title(overhead, step((boost, 150)))


def test_an_optimizer_of_the_programs_own_is_named_whether_torch_calls_it_or_the_loop(
    case: Case,
) -> None:
    title = case.title(own_optimizer, step((OWN, 200)))
    assert title.startswith(
        "optimizer: an optimizer of the program's own takes 42 % of a step (train.py:64)"
    )
    by_hand = ((CONV, 150), (BACKWARD, 150), (BY_HAND, 200))
    assert "takes 40 % of a step (augment.py:114)" in case.title(own_optimizer, by_hand)
    for other in (step((OPTIMIZER, 200)), step((LIBRARY_CLIPS, 200)), step((CLIP, 200))):
        assert case.found(own_optimizer, other) is None


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            ("norm = p.grad.norm()", "p.grad.mul_(1 / norm)"),
            "overhead: a loop of train_epoch takes 32 % of the time (train.py:172, from train.py:170)",
        ),
        (
            ("norm = gradient.norm()", "gradient.mul_(1 / norm)"),
            "Python-bound: train_epoch loops in Python for 26 % of the time (train.py:172)",
        ),
        (
            ("norm = p.grad.norm()", "for p in others: p.grad.mul_(1 / norm)"),
            "Python-bound: train_epoch goes through the weights one by one 26 % of the time (train.py:172)",
        ),
    ],
    ids=["it goes through p", "something else", "the next loop goes through p, too"],
)  # fmt: skip
def test_a_loop_is_a_call_down_to_the_last_line_that_names_what_it_goes_through(
    case: Case, texts: tuple[str, str], words: str
) -> None:
    head, norm, scale, other = (
        (*LOOP, case.line("train_epoch", line, text, TRAIN))
        for line, text in zip(
            (170, 171, 172, 174), ("for name, p in named:", *texts, "x = x / 2"), strict=True
        )
    )
    spans = step((head, 20), ((*norm, *NORM[-1:]), 60), (scale, 80), (other, 30))
    (found,) = case.findings(spans)  # of two rules that know it, one says more
    assert found.title.startswith(words)


KERAS = LIBRARY + "keras/src/backend/torch/trainer.py"
PREDICT = (*CALL, Frame("choose", DATA, 115), Frame("TorchTrainer.predict", KERAS, 500))
ANSWER = (*PREDICT, Frame("TorchTrainer.predict_step", KERAS, 90), CALL_IMPL)
FETCH = (*PREDICT, *DATA_WAIT[3:])


def test_a_librarys_predict_within_a_training_is_a_cause_at_the_users_line(case: Case) -> None:
    case.line("choose", 115, "values = model.predict(state)")
    spans = step((PREDICT, 50), (ANSWER, 100), (FETCH, 50))
    (found,) = case.findings(spans)
    assert (found.rule, found.severity) == ("inference-share", WARNING)
    assert found.sentence.startswith(
        "asking the model for answers takes 40 % of the time (augment.py:115, in keras's "
        "TorchTrainer.predict, from train.py:66)"
    )
    assert case.severity(inference, step((ANSWER, 75))) == INFO
    # What the program is for is no loss, and an evaluation is one, whatever answers in it.
    assert case.found(inference, [(ANSWER, 500)]) is None
    evaluated = step(((*CALL, Frame("evaluate", DATA, 64), *ANSWER[len(CALL) + 1 :]), 200))
    assert case.found(inference, evaluated) is None
    assert "evaluating takes 40 %" in case.title(evaluations, evaluated)


WATCH = Frame(
    "TorchHistory.log_tensor_stats", LIBRARY + "wandb/integration/torch/wandb_torch.py", 9
)
COMPOSE, BLUR = (
    Frame(name, LIBRARY + "kornia/core/composition.py", 9)
    for name in ("Compose.__call__", "GaussianBlur.apply")
)


@pytest.mark.parametrize(
    ("rule", "below", "text", "place"),
    [
        (logging_stalls, (*BACKWARD[len(PASS) :], WATCH), "loss.backward()", "train.py:66, in wandb's TorchHistory.log_tensor_stats"),
        (logging_stalls, (WATCH,), "history.log_tensor_stats(x)", "train.py:66, in wandb's TorchHistory.log_tensor_stats"),
        (overhead, (COMPOSE, BLUR), "x = self.transform(x)", "train.py:66, in kornia's GaussianBlur.apply"),
        (overhead, (DUMPS,), "x = self.transform(x)", "train.py:66"),
        (overhead, (Frame("norm", LIBRARY + "torch/functional.py", 9),), "x = self.transform(x)", "train.py:66"),
    ],
    ids=["a hook", "its outermost call", "a transform", "of the standard library", "of torch"],
)  # fmt: skip
def test_the_librarys_function_that_costs_is_named_beside_the_users_line(
    case: Case, rule: Rule, below: tuple[Frame, ...], text: str, place: str
) -> None:
    stack = (*LOOP, case.line("train_epoch", 66, text, TRAIN), *below)
    assert f" ({place}): " in case.title(rule, step((stack, 150)))
