from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import synthetic
from support.present import there
from support.stacktables import TRAIN, Tables, phase_of, stacks_in
from support.synthetic import DATA_WAIT, DEFORM, LIBRARY, MAIN, PIN_MEMORY, STARTED_NS

from profd.daemon.analyze import phases
from profd.daemon.analyze.phases import (
    BUILT_IN,
    PHASES,
    PhaseIndex,
    Rule,
    own_frame,
    phase_named,
    read_rules,
)
from profd.daemon.errors import UsageError
from profd.daemon.store.entities import Entities, has_ended
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame
from profd.daemon.store.rows import FrameRow, StackRow

ROOT = f"<module> | {TRAIN} | main()"
CALL = "Module._call_impl | torch/nn/modules/module.py"
LOADER = "torch/utils/data/dataloader.py"
FETCH = "_MapDatasetFetcher.fetch | torch/utils/data/_utils/fetch.py"
FOR = f"train_epoch | {TRAIN} | for images, labels in loader:"
EVALUATE = f"evaluate | {TRAIN} | correct += (model(images).argmax(1) == labels).sum().item()"


@pytest.fixture(autouse=True)
def _no_rules_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFD_HOME", str(tmp_path))


PROFILER = "torch/autograd/profiler.py"
LINEAR = "Linear.forward | torch/nn/modules/linear.py"
BACKWARD = "Tensor.backward | torch/_tensor.py"
METRIC = (CALL, "Metric.forward | torchmetrics/metric.py")
LBFGS = (f"train | {TRAIN} | optimizer.step(closure)", "LBFGS.step | torch/optim/lbfgs.py")
CLOSURE = (*LBFGS, f"train.<locals>.closure | {TRAIN} | out = network(x)")
ACT = (
    f"main | {TRAIN} | action, value = agent.get_action_and_value(obs)",
    f"Agent.get_action_and_value | {TRAIN} |",
)
UPDATE = (f"train | {TRAIN} | fit(examples)", "Language.update | spacy/language.py")
WRAPPER = "Optimizer.profile_hook_step.<locals>.wrapper | torch/optim/optimizer.py"
STEP = (f"train | {TRAIN} | adam.step()", WRAPPER)
HOOK = (*STEP, "_optimizer_post_hook | torch/profiler/__init__.py")
STATE = "Module.state_dict | torch/nn/modules/module.py"
REPORTS = [
    "Run.log | wandb/sdk/wandb_run.py",
    "log_metric | mlflow/tracking/fluent.py",
    "SummaryWriter.add_scalar | torch/utils/tensorboard/writer.py",
    "WandbCallback.on_log | transformers/integrations/integration_utils.py",
    "TQDMProgressBar.on_train_batch_end | lightning/pytorch/callbacks/progress/tqdm_progress.py",
    "LearningRateMonitor.on_train_batch_start | lightning/pytorch/callbacks/lr_monitor.py",
    "profile.step | torch/profiler/profiler.py",
    "tqdm.__new__ | tqdm/std.py",
    "WandbTracker.log | accelerate/tracking.py",
]
FORKED = (
    FOR,
    f"_MultiProcessingDataLoaderIter.__init__ | {LOADER}",
    "Popen._launch | multiprocessing/popen_fork.py",
    "BaseProcess._bootstrap | multiprocessing/process.py",
    "_worker_loop | torch/utils/data/_utils/worker.py",
)

PREDICT = (
    f"train | {TRAIN} | q = model.predict(x)",
    "TorchTrainer.predict | keras/src/backend/torch/trainer.py",
)
GENERATE = (
    "decorate_context | torch/utils/_contextlib.py",
    "GenerationMixin.generate | transformers/generation/utils.py",
)

GET = (
    "Queue.get | multiprocessing/queues.py",
    "Connection.recv | multiprocessing/connection.py",
    "Condition.wait | threading.py",
)

EVERY_STACK: list[tuple[str, Sequence[str]]] = [
    *(stack for name in ("stacks.txt", "stacks_python310.txt") for stack in stacks_in(name)),
    ("data wait", [EVALUATE, f"_MultiProcessingDataLoaderIter._get_data | {LOADER}"]),
    # A worker loads, though it was forked while the loop waited.
    ("data load in process", (*FORKED, FETCH)),
    ("waiting", (*FORKED, "Queue.get | multiprocessing/queues.py")),
    # A queue, pipe or pool of one's own, asked for a batch; whatever else is asked of one is unknown.
    ("data wait", (f"train | {TRAIN} | images, labels = batches.get()", *GET)),
    ("data wait", (f"train | {TRAIN} | x, y = self.sample_queue.get()", *GET)),
    ("data wait", (f"train | {TRAIN} | batch = pipe.recv()", *GET[1:])),
    ("data wait", (f"train | {TRAIN} | batch = futures.popleft().result()", *GET[2:])),
    ("data wait", (f"train | {TRAIN} | for image, label in pool.imap(load, files):", *GET[2:])),
    ("waiting", (f"train | {TRAIN} | message = commands.get()", *GET)),
    ("waiting", (f"train | {TRAIN} | for score in pool.imap(fit, folds):", *GET[2:])),
    ("other", (f"train | {TRAIN} | batch = store.get(key)", "get | store/client.py")),
    ("waiting", (*FORKED, f"work | {TRAIN} | message = commands.get()", *GET)),
    # A name that others use too tells no phase.
    (
        "forward",
        (f"train | {TRAIN} | out = model(x)", CALL, f"forward | {TRAIN} | x = self.conv(x)", CALL),
    ),
    ("loss", (f"train | {TRAIN} | a = net(x, y)", CALL, f"FocalLoss.forward | {TRAIN} | return x")),
    (
        "forward",
        (
            f"f | {TRAIN} | loss = loss_fn(model, x)",
            f"loss_fn | {TRAIN} | out = model(x)",
            CALL,
            LINEAR,
        ),
    ),
    ("loss", (f"train | {TRAIN} | loss = loss_fn(out, y)", f"smooth | {TRAIN} | a + b")),
    (
        "loss",
        (
            f"train | {TRAIN} | loss = -mll(output, y)",
            "linear_cg | linear_operator/utils/linear_cg.py",
        ),
    ),
    (
        "other",
        (f"train | {TRAIN} | loss = model.train_on_batch(x, y)", "fit | keras/src/trainer.py"),
    ),
    ("other", (f"train | {TRAIN} | loss = -mll(output, y)", f"smooth | {TRAIN} | a + b")),
    (
        "evaluation",
        (
            f"<module> | {TRAIN} | xgb.train(params)",
            "train | xgboost/training.py",
            "Booster.eval_set | xgboost/core.py",
        ),
    ),
    # spaCy trains by the layers of Thinc.
    (
        "backward",
        (
            *UPDATE,
            "finish_update | spacy/pipeline.py",
            "forward.<locals>.backprop | thinc/layers/maxout.py",
        ),
    ),
    ("forward", (*UPDATE, "forward | thinc/layers/maxout.py")),
    (
        "optimizer",
        (
            *UPDATE,
            "Model.finish_update | thinc/model.py",
            "Optimizer.__call__ | thinc/optimizers.py",
        ),
    ),
    ("optimizer", UPDATE),
    (
        "evaluation",
        (UPDATE[0], "Language.evaluate | spacy/language.py", "forward | thinc/layers/maxout.py"),
    ),
    (
        "optimizer",
        (
            UPDATE[0],
            "Adam._parallel_update_step | keras/src/backend/torch/optimizers/torch_adam.py",
        ),
    ),
    (
        "compile",
        (
            f"train | {TRAIN} | state = step(state)",
            "backend_compile_and_load | jax/_src/compiler.py",
        ),
    ),
    (
        "compile",
        (
            f"train | {TRAIN} | y = f(x)",
            "_DispatcherBase._compile_for_args | numba/core/dispatcher.py",
        ),
    ),
    (
        "forward",
        (
            f"train | {TRAIN} | loss = cross_entropy(net(x), y)",
            "_conv_nd | paddle/nn/functional/conv.py",
        ),
    ),
    (
        "loss",
        (
            f"train | {TRAIN} | loss = cross_entropy(net(x), y)",
            "cross_entropy | paddle/nn/functional/loss.py",
        ),
    ),
    (
        "backward",
        (
            f"train | {TRAIN} | x.run()",
            "f.<locals>.backward | paddle/base/dygraph/tensor_patch_methods.py",
        ),
    ),
    ("logging", (f"train | {TRAIN} | accuracy(logits, labels)", *METRIC)),
    ("evaluation", (f"evaluate | {TRAIN} | accuracy(logits, labels)", *METRIC)),
    # A training that evaluates, too, is no evaluation.
    ("backward", (f"train_and_eval | {TRAIN} | loss.backward()", BACKWARD)),
    ("backward", (f"train_and_validate | {TRAIN} | loss.backward()", BACKWARD)),
    ("backward", (f"fit_with_validation | {TRAIN} | loss.backward()", BACKWARD)),
    # What a library's predict or generate calls for an answer is none of the step's passes.
    ("inference", (*PREDICT, CALL, LINEAR)),
    ("inference", (*PREDICT, "Tensor.__array__ | torch/_tensor.py")),
    ("inference", (f"train | {TRAIN} | out = llm.generate(x)", *GENERATE, CALL, LINEAR)),
    ("evaluation", (f"evaluate | {TRAIN} | out = model.predict(x)", *PREDICT[1:], CALL, LINEAR)),
    ("inference", (*PREDICT, FETCH)),
    ("forward", (f"train | {TRAIN} | y = predict(x)", f"predict | {TRAIN} | net(x)", CALL, LINEAR)),
    # The closure of an optimizer is no optimizer.
    ("optimizer", LBFGS),
    ("forward", (*CLOSURE, CALL, LINEAR)),
    ("forward", (*LBFGS, f"train.<locals>.closure | {TRAIN} | x = x * mask")),
    ("backward", (*CLOSURE, BACKWARD)),
    ("optimizer", (*CLOSURE, "Optimizer.zero_grad | torch/optim/optimizer.py")),
    # An agent acts, and its world gives the data.
    ("forward", ACT),
    ("forward", (*ACT, "Categorical.sample | torch/distributions/categorical.py")),
    (
        "data load in process",
        (f"main | {TRAIN} | obs, reward = envs.step(action)", "Pole.step | /a/world.py"),
    ),
    ("optimizer", (f"main | {TRAIN} | optimizer.step()",)),
    # A moving average of the weights belongs to their update; its bare name does not make every
    # update one.
    ("optimizer", ("ModelEmaV2._update | timm/utils/model_ema.py", STATE)),
    ("optimizer", ("ModelEmaV3.update | timm/utils/model_ema.py", STATE)),
    ("optimizer", ("EMAModel.step | diffusers/training_utils.py", STATE)),
    ("optimizer", (f"update_ema | {TRAIN} | state = model.state_dict()", STATE)),
    ("optimizer", (f"EMA.update | {TRAIN} | state = model.state_dict()", STATE)),
    ("optimizer", ("AveragedModel.update_parameters | torch/optim/swa_utils.py", STATE)),
    *(("other", (f"{name} | {TRAIN} | a + b",)) for name in ("update", "step", "_update")),
    # Reports are logging, though they wait or save.
    *(
        ("logging", (f"train | {TRAIN} | report(step)", frame, "Condition.wait | threading.py"))
        for frame in REPORTS
    ),
    # A window that begins or ends behind the optimizer's step is no logging.
    ("other", HOOK),
    ("other", (*HOOK, f"KinetoStepTracker.increment_step | {PROFILER}")),
    ("optimizer", (*STEP, f"record_function.__exit__ | {PROFILER}")),
]


@pytest.mark.parametrize(("phase", "frames"), EVERY_STACK)
def test_stack_of_real_training_code_has_its_phase(phase: str, frames: Sequence[str]) -> None:
    assert phase_of(*frames) == phase


LOG = f"train | {TRAIN} | log(dumps(x))"
ITEM = f"train | {TRAIN} | loss.item()"
DUMPS = f"dumps | {TRAIN} | return str(x)"
LEAF = Rule(phase="synchronize", source=r"\.item\(", leaf=True)
INNERMOST = Rule(phase="logging", source="^log", innermost=True, library=False)
NAMED = (
    Rule(phase="loss", function=("*Loss.forward",)),
    Rule(phase="optimizer", function=("Adam.step",)),
)
NESTED = (Rule(phase="logging", function=("inner",)), Rule(phase="forward", function=("outer",)))


@pytest.mark.parametrize(
    ("rules", "frames", "phase"),
    [
        # A wildcard for every method does not meet every function.
        ((Rule(phase="optimizer", function=("Adam.*",)),), ("Adam.step | a.py",), "optimizer"),
        ((Rule(phase="optimizer", function=("Adam.*",)),), ("step | a.py",), "other"),
        # A rule on the leaf leaves outer frames alone.
        ((LEAF,), (ITEM,), "synchronize"),
        ((LEAF,), (ITEM, "inner | x.py"), "other"),
        # Of a line with several statements nothing shows which one runs: a rule is on all of them.
        ((LEAF,), (f"train | {TRAIN} | x = sleep(1); loss.item()",), "other"),
        ((LEAF,), (f"train | {TRAIN} | loss.item(); total.item();",), "synchronize"),
        ((LEAF,), (f"train | {TRAIN} | log('a; b', loss.item())",), "synchronize"),
        # A rule on the innermost line of the user covers what it calls, and no function of theirs.
        ((INNERMOST,), (LOG,), "logging"),
        ((INNERMOST,), (LOG, "dumps | json/__init__.py", "encode | json/encoder.py"), "logging"),
        ((INNERMOST,), (LOG, DUMPS), "other"),
        ((INNERMOST,), (LOG, DUMPS, "f | x.py"), "other"),
        # The conditions of a rule are about one frame.
        (
            (Rule(phase="forward", function=("step",), module=("a.py",)),),
            ("step | a.py",),
            "forward",
        ),
        (
            (Rule(phase="forward", function=("step",), module=("a.py",)),),
            ("step | b.py", "run | a.py"),
            "other",
        ),
        # The first rule in order decides, wherever its frame stands.
        (NESTED, ("outer | a.py", "inner | a.py"), "logging"),
        (NESTED, ("inner | a.py", "outer | a.py"), "logging"),
        # Up to Python 3.10 names are bare: those that others use too tell nothing.
        (NAMED, ("FocalLoss.forward | a.py",), "loss"),
        (NAMED, ("forward | a.py",), "other"),
        (NAMED, ("step | a.py",), "optimizer"),
    ],
)
def test_rules_decide_by_what_they_say_of_a_frame(
    rules: tuple[Rule, ...], frames: tuple[str, ...], phase: str
) -> None:
    assert phase_of(*frames, rules=rules) == phase


def test_phase_is_owed_to_the_line_that_calls_into_it() -> None:
    tables = Tables()
    model = tables.add(
        ROOT,
        f"train | {TRAIN} | logits = model(x)",
        CALL,
        f"Net.forward | {TRAIN} | x = self.a(x)",
        CALL,
    )
    library = tables.add("run | threading.py")
    unknown = tables.add(ROOT, f"train | {TRAIN} | x = x @ w", "helper | torch/x.py")
    index = tables.phases()

    log = "logging.info(dumps(sizes))"
    reported = tables.add(
        f"<module> | {TRAIN} | log(main())", f"main | {TRAIN} | {log}", "dumps | json/__init__.py"
    )

    lines = [index.user_line(stack) for stack in (model, library, unknown, reported)]

    assert [line and line.source for line in lines] == ["logits = model(x)", None, "x = x @ w", log]


def test_rules_of_the_user_come_first(tmp_path: Path) -> None:
    frames = (ROOT, "Adam.step | torch/optim/adam.py")
    before = phase_of(*frames)
    (tmp_path / "phases.toml").write_text('[[rule]]\nphase = "logging"\nfunction = ["Adam.step"]\n')

    assert (before, phase_of(*frames)) == ("optimizer", "logging")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[rule]]\nphase = "augment"\nfunction = ["f"]', "rule 1: there is no phase 'augment'"),
        ('[[rule]]\nphase = "other"', "rule 1: it says nothing of a frame"),
        ('[[rule]]\nphase = "other"\nsource = "("', "no regular expression"),
        ('[[rule]]\nphase = "other"\nfunctions = ["f"]', "unknown field `functions`"),
        ('[[rule]]\nphase = "other"\nfunction = "f"', "Expected `array`"),
        ("[[rule", "no table of [[rule]]"),
        (
            '[[rules]]\nphase = "other"\nfunction = ["f"]',
            "has 'rules' where it may have [[rule]] only",
        ),
        (b"\xff", "no table of [[rule]]"),
    ],
)
def test_wrong_table_is_refused_with_what_is_wrong(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    file = tmp_path / "phases.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(UsageError) as refusal:
        phase_of(ROOT)

    assert complaint in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_every_phase_has_a_rule_and_a_letter_of_its_own() -> None:
    names = [phase.name for phase in PHASES]
    ruled = {rule.phase for rule in read_rules(BUILT_IN)}

    assert ruled == set(names)
    assert max(Counter(phase.letter for phase in PHASES).values()) == 1
    assert phase_named("data wait").letter == "D"


class Counted(dict[int, StackRow]):
    """Stacks that count how often one is looked up."""

    lookups = 0

    def __getitem__(self, stack: int) -> StackRow:
        self.lookups += 1
        return super().__getitem__(stack)


def test_each_of_ten_thousand_deep_stacks_costs_a_few_steps() -> None:
    tables = Tables()
    tables.stacks = counted = Counted()
    leaf = tables.add(
        *[f"function_{depth} | package/module_{depth}.py | call()" for depth in range(1000)]
    )
    for number in range(leaf + 1, leaf + 10_001):
        tables.frames[number] = FrameRow(
            number, f"leaf_{number % 3000}", "a.py", "a.py", number, False, "x()"
        )
        tables.stacks[number] = StackRow(number, leaf, 1 + number % leaf)
    index = tables.phases()

    counted.lookups = 0
    for stack in counted:
        index.of_stack(stack)

    assert 0 < counted.lookups < 10 * len(counted)


FRAMEWORKS = stacks_in("stacks_frameworks.txt")


def bare(frame: str) -> str:
    """Return a frame with the name that Python up to 3.10 tells."""
    function, rest = frame.split(" |", 1)
    return f"{function.rpartition('.')[2]} |{rest}"


@pytest.mark.parametrize(("phase", "frames"), FRAMEWORKS)
def test_stack_of_a_framework_has_its_phase(phase: str, frames: list[str]) -> None:
    assert phase_of(*frames) == phase
    assert phase_of(*map(bare, frames)) == phase


def test_groups_of_ranks_are_made_at_the_start_and_others_of_the_users_are_not() -> None:
    c10d = "torch/distributed/distributed_c10d.py"
    loss = "cross_entropy | torch/nn/functional.py"
    for made in ("new_group", "new_subgroups", "split_group"):
        assert phase_of(f"main | {TRAIN} |", f"{made} | {c10d}") == "startup, import"
        assert phase_of(f"main | {TRAIN} |", f"{made} | {TRAIN} |", loss) == "loss"


def test_copies_and_imports_belong_to_what_they_are_a_part_of() -> None:
    imported = (
        "_find_and_load | <frozen importlib._bootstrap>",
        "<module> | torch/_dynamo/convert_frame.py",
    )

    assert phase_of(*imported) == "startup, import"
    assert phase_of("_compile | torch/_dynamo/convert_frame.py", *imported) == "compile"
    looked_for = (
        "find_spec | <frozen importlib.util>",
        "_find_spec | <frozen importlib._bootstrap>",
    )
    assert (
        phase_of("AcceleratedOptimizer.step | accelerate/optimizer.py", *looked_for) == "optimizer"
    )
    assert phase_of(imported[0], looked_for[1]) == "startup, import"
    copy = "mask = mask.to(hidden.device)"

    assert (
        phase_of(f"train | {TRAIN} | out = model(x)", CALL, f"Net.forward | {TRAIN} | {copy}")
        == "host-to-device copy"
    )
    assert (
        phase_of(CALL, f"GPT2Model.forward | transformers/modeling_gpt2.py | {copy}")
        == "host-to-device copy"
    )
    assert phase_of(f"_single_tensor_adam | torch/optim/adam.py | {copy}") == "optimizer"


CHILD = (*DEFORM[:10], Frame("poll", LIBRARY + "torch/utils/data/_utils/worker.py", 1))


def stacks(path: Path, *seen: tuple[Frame, ...]) -> tuple[RunReader, list[int]]:
    """Write a run in which each of these stacks was seen for a tenth of a second.

    Return it with the stacks' ids.
    """
    taken = synthetic.recording(
        MAIN, STARTED_NS, ((1, "MainThread", True, [(stack, 100) for stack in seen]),)
    )
    reader = RunReader(synthetic.write_records(path, [synthetic.main_process(), taken]))
    return reader, [interval.stack for interval in reader.intervals()]


def test_what_is_forgotten_is_read_again_and_phases_that_were_seen_stay_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, (wait, pin, deform) = stacks(tmp_path / "a.profd", DATA_WAIT, PIN_MEMORY, DEFORM)
    expected = PhaseIndex(whole)
    monkeypatch.setattr(phases, "MOST_STACKS", len(DATA_WAIT))
    with RunReader(whole.path, Entities(has_ended)) as reader:
        reader.refresh()
        index, held = PhaseIndex(reader), []
        for stack in (wait, pin, deform, deform, wait):
            assert reader.frames_of(stack) == whole.frames_of(stack)
            assert index.of_stack(stack) == expected.of_stack(stack)
            assert index.user_line(stack) == expected.user_line(stack)
            index.forget_many()
            held.append((len(reader.stacks), len(index._met_by_stack)))
            assert expected.of_stack(wait) in index.of_run()
    assert (0, 1) in held
    assert index.user_line.cache_info().currsize <= 2
    assert set(index.of_run()) == set(expected.of_run())


def test_a_look_that_needs_many_stacks_forgets_them_once_they_are_twice_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "MOST_STACKS", 1)
    whole, seen = stacks(tmp_path / "a.profd", DATA_WAIT, PIN_MEMORY, DEFORM)
    with RunReader(whole.path, Entities(has_ended)) as reader:
        reader.refresh()
        index = PhaseIndex(reader)
        for stack in seen:
            reader.frames_of(stack)
        index.forget_many()
        assert len(reader.stacks) > 1
        reader.stacks.update(
            {-one: StackRow(-one, 0, 1) for one in range(1, len(reader.stacks) + 2)}
        )
        index.forget_many()
        assert not reader.stacks


def test_the_users_line_of_a_forked_child_is_its_own_and_not_its_parents(tmp_path: Path) -> None:
    reader, (wait, pin, deform, child) = stacks(
        tmp_path / "a.profd", DATA_WAIT, PIN_MEMORY, DEFORM, CHILD
    )
    main, worker = (there(own_frame(reader.frames_of(stack))) for stack in (wait, deform))

    assert main.line == 58
    assert own_frame(reader.frames_of(pin)) is None
    assert worker.function == "elastic_deform"
    assert reader.frames_of(child)[-1].function == "poll"
    assert own_frame(reader.frames_of(child)) is None


IDLE_LOOP = (
    f"<module> | {TRAIN} | asyncio.run(main())",
    "BaseEventLoop._run_once | asyncio/base_events.py | event_list = self._selector.select(timeout)",
    "EpollSelector.select | selectors.py",
)


def test_an_event_loop_without_work_waits_for_the_input_of_a_run_that_trains() -> None:
    tables = Tables()
    idle, index = tables.add(*IDLE_LOOP), tables.phases()
    assert index.of_stack(idle) == "wait for requests"
    tables.add(f"train | {TRAIN} | loss.backward()", BACKWARD)
    assert index.of_stack(idle) == tables.phases().of_stack(idle) == "data wait"
    assert index.is_within(idle, "wait for requests")
