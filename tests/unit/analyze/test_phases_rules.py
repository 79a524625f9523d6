from __future__ import annotations

from pathlib import Path

import pytest
from support.stacktables import TRAIN, phase_of, stacks_in

from profd.daemon.analyze.phases import Rule

CALL = "Module._call_impl | torch/nn/modules/module.py"
LINEAR = "Linear.forward | torch/nn/modules/linear.py"
FRAMEWORKS = stacks_in("stacks_frameworks.txt")


@pytest.fixture(autouse=True)
def _no_rules_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFD_HOME", str(tmp_path))


def bare(frame: str) -> str:
    """Return a frame with the name that Python up to 3.10 tells."""
    function, rest = frame.split(" |", 1)
    return f"{function.rpartition('.')[2]} |{rest}"


@pytest.mark.parametrize(("phase", "frames"), FRAMEWORKS)
def test_stack_of_a_framework_has_its_phase(phase: str, frames: list[str]) -> None:
    assert phase_of(*frames) == phase


@pytest.mark.parametrize(("phase", "frames"), FRAMEWORKS)
def test_stack_of_a_framework_has_its_phase_by_bare_names_too(phase: str, frames: list[str]) -> None:
    assert phase_of(*map(bare, frames)) == phase


def test_a_name_that_others_use_too_tells_no_phase() -> None:
    frames = (f"train | {TRAIN} | out = model(x)", CALL, f"forward | {TRAIN} | x = self.conv(x)", CALL)

    assert phase_of(*frames) == "forward"
    assert phase_of(f"train | {TRAIN} | a = net(x, y)", CALL, f"FocalLoss.forward | {TRAIN} | return x") == "loss"
    line = f"train | {TRAIN} | loss = loss_fn(model, batch)"

    assert phase_of(line, f"loss_fn | {TRAIN} | out = model(batch)", CALL, LINEAR) == "forward"
    assert phase_of(f"train | {TRAIN} | loss = loss_fn(out, y)", f"smooth | {TRAIN} | a + b") == "loss"
    metric = (CALL, "Metric.forward | torchmetrics/metric.py")

    assert phase_of(f"train | {TRAIN} | accuracy(logits, labels)", *metric) == "logging"
    assert phase_of(f"evaluate | {TRAIN} | accuracy(logits, labels)", *metric) == "evaluation"
    rules = (Rule(phase="loss", function=("*Loss.forward",)), Rule(phase="optimizer", function=("Adam.step",)))

    assert phase_of("FocalLoss.forward | a.py", rules=rules) == "loss"
    assert phase_of("forward | a.py", rules=rules) == "other"
    assert phase_of("step | a.py", rules=rules) == "optimizer"


@pytest.mark.parametrize("function", ["train_and_eval", "train_and_validate", "fit_with_validation"])
def test_training_that_evaluates_too_is_no_evaluation(function: str) -> None:
    line = f"{function} | {TRAIN} | loss.backward()"

    assert phase_of(line, "Tensor.backward | torch/_tensor.py") == "backward"


def test_closure_of_an_optimizer_is_no_optimizer() -> None:
    step = (f"train | {TRAIN} | optimizer.step(closure)", "LBFGS.step | torch/optim/lbfgs.py")
    closure = (*step, f"train.<locals>.closure | {TRAIN} | out = network(x)")

    assert phase_of(*step) == "optimizer"
    assert phase_of(*closure, CALL, LINEAR) == "forward"
    assert phase_of(*step, f"train.<locals>.closure | {TRAIN} | x = x * mask") == "forward"
    assert phase_of(*closure, "Tensor.backward | torch/_tensor.py") == "backward"
    assert phase_of(*closure, "Optimizer.zero_grad | torch/optim/optimizer.py") == "optimizer"


def test_an_agent_acts_and_its_world_gives_the_data() -> None:
    act = (
        f"main | {TRAIN} | action, value = agent.get_action_and_value(obs)",
        f"Agent.get_action_and_value | {TRAIN} |",
    )

    assert phase_of(*act) == "forward"
    assert phase_of(*act, "Categorical.sample | torch/distributions/categorical.py") == "forward"
    assert phase_of(f"main | {TRAIN} | obs, reward = envs.step(action)", "Pole.step | /a/world.py") == (
        "data load in process"
    )
    assert phase_of(f"main | {TRAIN} | optimizer.step()") == "optimizer"


def test_copies_and_imports_belong_to_what_they_are_a_part_of() -> None:
    imported = ("_find_and_load | <frozen importlib._bootstrap>", "<module> | torch/_dynamo/convert_frame.py")

    assert phase_of(*imported) == "startup, import"
    assert phase_of("_compile | torch/_dynamo/convert_frame.py", *imported) == "compile"
    copy = "mask = mask.to(hidden.device)"

    assert (
        phase_of(f"train | {TRAIN} | out = model(x)", CALL, f"Net.forward | {TRAIN} | {copy}") == "host-to-device copy"
    )
    assert phase_of(CALL, f"GPT2Model.forward | transformers/modeling_gpt2.py | {copy}") == "host-to-device copy"
    assert phase_of(f"_single_tensor_adam | torch/optim/adam.py | {copy}") == "optimizer"


@pytest.mark.parametrize(
    "frame",
    [
        "ModelEmaV2._update | timm/utils/model_ema.py",
        "ModelEmaV3.update | timm/utils/model_ema.py",
        "EMAModel.step | diffusers/training_utils.py",
        f"update_ema | {TRAIN} | state = model.state_dict()",
        f"EMA.update | {TRAIN} | state = model.state_dict()",
        "AveragedModel.update_parameters | torch/optim/swa_utils.py",
    ],
)
def test_moving_average_of_the_weights_belongs_to_their_update(frame: str) -> None:
    assert phase_of(frame, "Module.state_dict | torch/nn/modules/module.py") == "optimizer"


@pytest.mark.parametrize("name", ["update", "step", "_update"])
def test_bare_name_of_a_moving_average_does_not_make_every_update_one(name: str) -> None:
    assert phase_of(f"{name} | {TRAIN} | a + b") == "other"


@pytest.mark.parametrize(
    "frame",
    [
        "Run.log | wandb/sdk/wandb_run.py",
        "log_metric | mlflow/tracking/fluent.py",
        "SummaryWriter.add_scalar | torch/utils/tensorboard/writer.py",
        "WandbCallback.on_log | transformers/integrations/integration_utils.py",
        "TQDMProgressBar.on_train_batch_end | lightning/pytorch/callbacks/progress/tqdm_progress.py",
        "LearningRateMonitor.on_train_batch_start | lightning/pytorch/callbacks/lr_monitor.py",
        "profile.step | torch/profiler/profiler.py",
        "tqdm.__new__ | tqdm/std.py",
        "WandbTracker.log | accelerate/tracking.py",
    ],
)
def test_reports_are_logging_though_they_wait_or_save(frame: str) -> None:
    assert phase_of(f"train | {TRAIN} | report(step)", frame, "Condition.wait | threading.py") == "logging"
