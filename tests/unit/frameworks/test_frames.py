"""What frames mean, by the table: the same of a stored frame and of one of a live stack."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from support import synthetic
from support.folders import ROOT
from support.synthetic import LIBRARY

from profd.daemon.analyze.collectives import WaitIndex
from profd.daemon.analyze.phases import BACKWARD, PhaseIndex
from profd.daemon.frameworks.frames import (
    TABLE,
    Functions,
    Meaning,
    all_meanings,
    any_means,
    function_test,
    means,
)
from profd.daemon.hangs.cause import group_of
from profd.daemon.hangs.look import StackState
from profd.daemon.hangs.waits import Wait
from profd.daemon.steps.loop import trains
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.rows import FrameRow
from profd.daemon.tree import roles
from profd.daemon.tree.tree import Member

KNOWN: tuple[tuple[Meaning, str, str], ...] = (
    ("backward", "Tensor.backward", "torch/_tensor.py"),
    ("backward", "grad", "torch/autograd/__init__.py"),
    ("backward", "_engine_run_backward", "torch/autograd/graph.py"),
    ("backward", "DeepSpeedEngine.backward", "deepspeed/runtime/engine.py"),
    ("backward", "Strategy.backward", "lightning/pytorch/strategies/strategy.py"),
    ("backward", "Accelerator.backward", "accelerate/accelerator.py"),
    ("engine", "backward", "torch/autograd/__init__.py"),
    ("optimizer step", "Optimizer.profile_hook_step.<locals>.wrapper", "torch/optim/optimizer.py"),
    ("optimizer step", "BaseOptimizer.apply", "keras/src/optimizers/base_optimizer.py"),
    ("optimizer step", "Booster.update", "lightgbm/basic.py"),
    ("optimizer step", "Booster.update", "xgboost/core.py"),
    ("multi-tensor update", "_multi_tensor_adamw", "torch/optim/adamw.py"),
    ("calls forward", "Module._call_impl", "torch/nn/modules/module.py"),
    ("no gradients", "context_decorator.<locals>.decorate_context", "torch/utils/_contextlib.py"),
    ("evaluation", "Booster.eval_set", "xgboost/core.py"),
    ("inference", "TorchTrainer.predict", "keras/src/backend/torch/trainer.py"),
    ("inference", "GenerationMixin.generate", "transformers/generation/utils.py"),
    ("averages weights", "AveragedModel.update_parameters", "torch/optim/swa_utils.py"),
    ("named like an evaluation", "Task.validate_epoch", "train.py"),
    ("collective", "all_reduce", "torch/distributed/distributed_c10d.py"),
    ("collective", "DistributedDataParallel._sync_buffers", "torch/nn/parallel/distributed.py"),
    ("waits for ranks", "Stage.step", "torch/distributed/pipelining/schedules.py"),
    ("one-sided", "broadcast", "torch/distributed/distributed_c10d.py"),
    ("of a rank", "DistributedDataParallel.forward", "torch/nn/parallel/distributed.py"),
    ("of a rank", "FullyShardedDataParallel.forward", "torch/distributed/fsdp/fsdp.py"),
    ("makes groups", "initialize_model_parallel", "megatron/core/parallel_state.py"),
    ("joins all ranks", "init_process_group", "torch/distributed/distributed_c10d.py"),
    ("worker loop", "_worker_loop", "torch/utils/data/_utils/worker.py"),
    ("worker loop", "worker", "multiprocessing/pool.py"),
    ("starts workers", "DataLoader._get_iterator", "torch/utils/data/dataloader.py"),
    ("no batch yet", "_PollLikeSelector.select", "selectors.py"),
    ("env runner", "SingleAgentEnvRunner.sample", "ray/rllib/env/single_agent_env_runner.py"),
    ("waits for requests", "Worker.main_loop", "ray/_private/worker.py"),
    ("queue", "Queue.get", "multiprocessing/queues.py"),
    ("lock", "Condition.wait", "threading.py"),
    ("joins a thread", "Thread._wait_for_tstate_lock", "threading.py"),
    ("child begins", "BaseProcess._bootstrap", "multiprocessing/process.py"),
)
NOT: tuple[tuple[Meaning, str, str], ...] = (
    ("backward", "Tensor.item", "torch/_tensor.py"),
    ("backward", "BackwardCFunction.apply", "torch/autograd/function.py"),
    ("backward", "backward", "train.py"),
    ("engine", "Accelerator.backward", "accelerate/accelerator.py"),
    ("optimizer step", "LRScheduler.step", "torch/optim/lr_scheduler.py"),
    ("inference", "predict", "train.py"),
    ("inference", "BaseModel.predict", "ultralytics/nn/tasks.py"),
    ("averages weights", "Adam.step", "torch/optim/adam.py"),
    ("named like an evaluation", "train_and_eval", "train.py"),
    ("named like an evaluation", "train_epoch", "train.py"),
    ("collective", "Stage.step", "torch/distributed/pipelining/schedules.py"),
    ("waits for ranks", "FullyShardedDataParallel.forward", "torch/distributed/fsdp/fsdp.py"),
    ("waits for ranks", "run", "torch/distributed/run.py"),
    ("of a rank", "<module>", "torch/distributed/distributed_c10d.py"),
    ("worker loop", "worker", "pool.py"),
    ("no batch yet", "_MultiProcessingDataLoaderIter._process_data", "torch/utils/data/x.py"),
    ("torch", "relu", "keras/src/backend/torch/nn.py"),
)


def stored(function: str, path: str) -> FrameRow:
    return FrameRow(1, function, LIBRARY + path, path, 9, path != "train.py", None)


@pytest.mark.parametrize(("meaning", "function", "path"), KNOWN)
def test_a_function_has_its_meaning_stored_live_and_on_any_python(
    meaning: Meaning, function: str, path: str
) -> None:
    without_class = function.rpartition(".")[2]
    assert means(stored(function, path), meaning)
    assert means(stored(without_class, path), meaning)
    assert means(Frame(function, LIBRARY + path, 9), meaning)
    assert means(Frame(without_class, f"/src/checkout/{path}", 9), meaning)


@pytest.mark.parametrize(("meaning", "function", "path"), NOT)
def test_a_function_beside_it_does_not(meaning: Meaning, function: str, path: str) -> None:
    assert not means(stored(function, path), meaning)


def test_up_to_python_310_a_method_alone_is_not_told_from_one_of_a_like_class() -> None:
    fetch = "torch/utils/data/_utils/fetch.py"
    assert means(stored("_IterableDatasetFetcher.fetch", fetch), "iterable dataset")
    assert not means(stored("_MapDatasetFetcher.fetch", fetch), "iterable dataset")
    assert not means(stored("fetch", fetch), "iterable dataset")


def test_all_conditions_of_an_entry_hold_for_one_function() -> None:
    test = function_test(Functions(function=("step",), module=("a/*",), not_module=("a/b.py",)))
    found = [test(name, path) for name in ("A.step", "go") for path in ("a/c.py", "a/b.py", "c.py")]
    assert found == [True, False, False, False, False, False]
    assert function_test(Functions())("any", "where.py")


def test_a_pattern_of_paths_is_compiled_for_functions_with_a_name_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, real = list[str](), re.compile

    def note(pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return real(pattern)

    monkeypatch.setattr(re, "compile", note)
    test = function_test(Functions(function=("step", "go"), module=("flax/*", "flix/a[bc].py")))
    assert not test("run", "flax/a.py")
    assert compiled == []
    assert [test("step", "flix/ab.py"), test("A.go", "/usr/flax/b.py")] == [True, True]
    assert [test("step", "own/flix/ab.py"), test("overgo", "flax/b.py")] == [False, False]
    assert sum("flax" in one for one in compiled) == 1
    starred = function_test(Functions(function=("step*",)))
    assert [starred("stepped", "a.py"), starred("A.step", "a.py"), starred("go", "a.py")] == [
        True,
        True,
        False,
    ]


def test_each_meaning_is_explained_and_asked_for() -> None:
    table = TABLE.read_text()
    asked = "".join(path.read_text() for path in sources() if path != TABLE.with_suffix(".py"))
    for meaning in get_args(Meaning):
        assert f'"{meaning}"' in table
        assert f'"{meaning}"' in asked


def test_no_other_module_names_a_file_of_a_framework() -> None:
    packages = {path.partition("/")[0] for _, _, path in KNOWN if "/" in path}
    file = re.compile(rf"\b({'|'.join(packages - {'multiprocessing'})})/[\w/]+(\.py\b|/$)")
    for source in sources():
        if source.suffix == ".py":
            for node in ast.walk(ast.parse(source.read_text())):
                text = node.value if isinstance(node, ast.Constant) else ""
                is_name = isinstance(text, str) and " " not in text
                assert not (is_name and file.search(str(text))), (source, text)


def test_a_framework_with_an_entry_is_known_to_all_that_ask(tmp_path: Path) -> None:
    """A backward pass is one in the tree, steps, hangs and phases, without the frames of torch."""
    training = (
        Frame("<module>", "/srv/train.py", 40),
        Frame("DeepSpeedEngine.backward", LIBRARY + "deepspeed/runtime/engine.py", 2000),
    )
    assert roles.is_training([training])
    assert trains(training[-1])
    assert any_means(training, "backward")
    assert all_meanings(training) == {"backward"}

    member = Member(
        synthetic.identity_of(), None, ("python", "train.py"), "main", 0, None, "3.11.7", 1
    )
    assert (
        group_of(StackState(member, "MainThread", True, training, Wait("lock", ""))) == "collective"
    )

    taken = synthetic.recording(
        synthetic.identity_of(),
        synthetic.STARTED_NS,
        ((1, "MainThread", True, [(training, 100)]),),
    )
    reader = RunReader(
        synthetic.write_records(tmp_path / "a.profd", [synthetic.main_process(), taken])
    )
    phases = PhaseIndex(reader)
    (stack,) = {row.stack for row in reader.intervals()}
    assert phases.of_stack(stack) == BACKWARD
    assert WaitIndex(reader, phases).may_wait(stack)


def sources() -> list[Path]:
    folders = (ROOT / name for name in ("cli", "daemon", "tui"))
    return [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".toml")
    ]
