"""Parts of a step that may be what the program is for, and may cost less."""

from __future__ import annotations

from support.findingruns import CALL_IMPL, HEALTHY, LOAD_IN_PROCESS, LOOP, MEASURE, PASS, Case, step
from support.synthetic import LIBRARY, TRAIN
from support.training_stacks import BACKWARD, DATA

from profd.daemon.findings.finding import INFO, WARNING
from profd.daemon.findings.parts import (
    forward_without_gradients,
    largest_part,
    part_of_model,
    text_generation,
)
from profd.daemon.store.records import Frame

DECORATED = Frame("decorate_context", LIBRARY + "torch/utils/_contextlib.py", 124)
TEACH = Frame("teach", DATA, 90)


def test_a_model_function_that_takes_much_time_in_no_module_is_a_finding(case: Case) -> None:
    spread = (*MEASURE, Frame("Layer.spread", DATA, 87))
    found = case.finding(part_of_model, step((spread, 300)))
    assert found.severity == WARNING
    assert found.title.startswith(
        "model: Layer.spread takes 60 % of the time within the model (augment.py:87, "
        "from augment.py:60)"
    )
    assert case.severity(part_of_model, step((spread, 200))) == INFO
    for other in (
        MEASURE,
        (*spread, CALL_IMPL),
        (*LOOP, Frame("forward", DATA, 88), Frame("spread", DATA, 87)),
    ):
        assert case.found(part_of_model, step((other, 200))) is None
    # A known kind has a finding of its own.
    case.line("spread", 87, "top = torch.quantile(x, 0.999)")
    assert case.found(part_of_model, step((spread, 200))) is None


def test_a_function_with_most_of_a_pass_without_gradients_is_named_by_its_own_share(
    case: Case,
) -> None:
    shifted = (*PASS, DECORATED, TEACH, CALL_IMPL, Frame("Shift.forward", DATA, 60))
    kernel = (*shifted, Frame("Shift.kernel", DATA, 87))
    (found,) = case.findings(step((shifted, 100), (kernel, 200)))
    assert found.title.startswith("model: Shift.kernel takes 40 % of the time within the model")
    (found, *_) = case.findings(step((shifted, 200), (kernel, 100)))
    assert found.title.startswith("model: a forward pass without gradients takes 60 % of the time")


def test_a_model_that_the_user_runs_without_gradients_in_a_step_is_a_remark_at_its_call(
    case: Case,
) -> None:
    taught = (*PASS, DECORATED, TEACH, CALL_IMPL)
    found = case.finding(forward_without_gradients, step((taught, 200)))
    assert found.severity == INFO
    assert found.title.startswith(
        "model: a forward pass without gradients takes 40 % of the time, in teach (augment.py:90)"
    )
    # If that is most of a step, it has to be looked at.
    assert case.severity(forward_without_gradients, step((taught, 350))) == WARNING
    # What it does besides, as `generate` between the passes, counts where most of it is the
    # model's.
    besides = (
        *PASS,
        DECORATED,
        TEACH,
        Frame("sample", LIBRARY + "transformers/generation/utils.py", 9),
    )
    title = case.title(forward_without_gradients, step((taught, 150), (besides, 50)))
    assert "takes 40 % of the time" in title
    assert case.found(forward_without_gradients, step((taught, 90), (besides, 110))) is None
    # A block that calls a function, and one that calls the model itself, each by itself.
    block, another = (
        (*LOOP, Frame("train_epoch", TRAIN, 72)),
        (*LOOP, Frame("train_epoch", TRAIN, 74), CALL_IMPL),
    )
    title = case.title(
        forward_without_gradients, step(((*block, TEACH, CALL_IMPL), 200), (another, 150))
    )
    assert "takes 40 % of the time, in teach (train.py:72)" in title
    title = case.title(forward_without_gradients, step(((*block, CALL_IMPL), 150), (another, 200)))
    assert "takes 40 % of the time, in train_epoch (train.py:74)" in title
    # One that no training is beside, one that computes no model, and a library's own.
    library = (
        *LOOP,
        Frame("run", LIBRARY + "lightning/loops.py", 5),
        DECORATED,
        Frame("closure", LIBRARY + "l.py", 1),
    )
    assert case.found(forward_without_gradients, [(taught, 500)]) is None
    for other in ((*LOOP, DECORATED, TEACH), (*library, TEACH, CALL_IMPL)):
        assert case.found(forward_without_gradients, step((other, 200))) is None


def test_an_agent_should_run_its_model_for_more_observations_at_once(case: Case) -> None:
    acts = (*PASS, DECORATED, TEACH, CALL_IMPL)
    environment = (
        *LOOP,
        Frame("CartPoleEnv.step", LIBRARY + "gymnasium/envs/classic_control/cartpole.py", 166),
    )
    own = (*LOOP, Frame("CatchEnv.step", DATA, 12))
    for one in (environment, own):
        found = case.finding(forward_without_gradients, step((acts, 200), (one, 50)))
        assert "teach (augment.py:90): running it for more at once speeds steps up" in found.title
        assert "num_envs" in found.remedy
    assert "store it" in case.finding(forward_without_gradients, step((acts, 200))).remedy


def test_text_that_a_model_makes_for_its_own_training_is_a_cause_from_half_of_the_time_on(
    case: Case,
) -> None:
    module = LIBRARY + "transformers/generation/utils.py"
    generate = (DECORATED, Frame("GenerationMixin.generate", module, 2215))
    made = (*PASS, *generate, Frame("GenerationMixin._sample", module, 3236), CALL_IMPL)
    found = case.finding(text_generation, step((made, 300)))
    assert found.severity == WARNING
    assert found.title.startswith(
        "generation: generating text takes 60 % of the time (train.py:61, in transformers's "
        "GenerationMixin.generate): generating it"
    )
    assert case.severity(text_generation, step((made, 200))) == INFO
    assert case.found(text_generation, step((made, 40))) is None
    assert case.found(text_generation, [(made, 500)]) is None  # nothing is trained
    without_gradients = (*PASS, DECORATED, TEACH, *made[len(PASS) :])
    assert [one.rule for one in case.findings(step((without_gradients, 300)))] == [
        "text-generation"
    ]


def test_the_largest_part_of_a_step_by_hand_is_a_remark_at_its_call(case: Case) -> None:
    backward = (LOOP[0], Frame("main", TRAIN, 91), Frame("backward", TRAIN, 70))
    einsum = (*backward, Frame("einsum", LIBRARY + "numpy/core/einsumfunc.py", 1371))
    by_hand = ((backward, 100), (einsum, 200), ((*LOOP, Frame("forward", TRAIN, 71)), 200))
    (found,) = case.findings(by_hand)
    assert (found.severity, found.rule) == (INFO, "largest-part")
    assert found.title.startswith("largest part: backward takes 60 % of the time (train.py:91)")
    findings = case.findings((*by_hand[:2], (LOAD_IN_PROCESS, 200)))
    assert [one.rule for one in findings] == ["input-bound-in-process"]


def test_neither_the_loop_itself_nor_a_fit_of_a_library_is_a_part(case: Case) -> None:
    fit = (LOOP[0], Frame("Booster.update", LIBRARY + "xgboost/core.py", 2391))
    assert case.found(largest_part, [(fit, 300), (LOAD_IN_PROCESS, 200)]) is None
    svi = (LOOP[0], Frame("main", TRAIN, 91))
    elbo, backward = (
        (*svi, Frame("SVI.step", LIBRARY + "pyro/infer/svi.py", 145)),
        (*svi, *BACKWARD[-2:]),
    )
    assert case.found(largest_part, [(elbo, 300), (backward, 180), (LOAD_IN_PROCESS, 20)]) is None
    loop = (LOOP[0], Frame("forward", TRAIN, 71))
    assert case.found(largest_part, [(loop, 475), (LOAD_IN_PROCESS, 25)]) is None
    assert case.found(largest_part, [(loop, 300), (LOAD_IN_PROCESS, 200)]) is not None


def test_a_library_that_the_script_itself_calls_has_its_name(case: Case) -> None:
    script = Frame("<module>", TRAIN, 58)
    collect = (script, Frame("Collector.iterator", LIBRARY + "torchrl/collectors/_single.py", 9))
    title = case.title(largest_part, [(collect, 300), (LOAD_IN_PROCESS, 200)])
    assert title.startswith("largest part: torchrl takes 60 % of the time (train.py:58)")
    by_hand = [(collect, 130), ((Frame("<module>", TRAIN, 71),), 170), (LOAD_IN_PROCESS, 200)]
    assert case.title(largest_part, by_hand).startswith(
        "largest part: the script takes 60 % of the time"
    )


def test_passes_of_torch_and_what_runs_in_a_module_are_no_largest_part(case: Case) -> None:
    assert case.found(largest_part, HEALTHY) is None
    assert case.found(largest_part, step(((*MEASURE, Frame("spread", DATA, 87)), 200))) is None
