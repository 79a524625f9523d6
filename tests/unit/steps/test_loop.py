"""Which loop is that of the steps, by stacks and sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.steps.declared import Declared
from profd.daemon.steps.loop import Stack, StepLoop, find_loop, sight_of
from profd.daemon.store.records import Frame

BACKWARD = [
    Frame("Tensor.backward", "/x/site-packages/torch/_tensor.py", 9),
    Frame("engine", "/x/e.py", 1),
]
OPTIMIZER = [
    Frame(
        "Optimizer.profile_hook_step.<locals>.wrapper",
        "/x/site-packages/torch/optim/optimizer.py",
        9,
    )
]
KERAS = [Frame("BaseOptimizer.apply", "/x/site-packages/keras/src/optimizers/base_optimizer.py", 9)]
FORWARD = [Frame("Module._call_impl", "/x/site-packages/torch/nn/modules/module.py", 9)]


class Script:
    """A script, whose lines are found by what stands in them."""

    def __init__(self, folder: Path, source: str) -> None:
        self._file = folder / "train.py"
        self._file.write_text(source)
        self._lines = source.splitlines()

    def stack(
        self, *calls: tuple[str, str], inside: list[Frame] = FORWARD, samples: int = 10
    ) -> list[Stack]:
        """Return so many stacks of functions at the lines with these texts, and of ``inside``."""
        frames = [Frame(name, str(self._file), self.line(text)) for name, text in calls]
        return [[*frames, *inside]] * samples

    def line(self, text: str) -> int:
        return next(number for number, line in enumerate(self._lines, 1) if text in line)


def loop_in(*stacks: list[Stack]) -> StepLoop | None:
    """Return the loop that is found in all of the stacks."""
    declared = Declared()
    return find_loop([sight_of(one, declared) for some in stacks for one in some])


def head(found: StepLoop | None) -> tuple[int, int | None]:
    """Return the first line of a loop, and that of its micro-batches."""
    assert found is not None
    return found.place.loop.first_line, found.micro.loop.first_line if found.micro else None


NESTED = """
def train():
    for epoch in range(9):
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
        for batch in others:
            model(batch)
"""


def test_the_loop_is_the_innermost_one_around_backward(tmp_path: Path) -> None:
    script = Script(tmp_path, NESTED)
    stacks = [
        script.stack(("train", "loss = model"), samples=500),
        script.stack(("train", "loss.backward"), inside=BACKWARD),
        script.stack(("train", "optimizer.step"), inside=OPTIMIZER, samples=3),
        script.stack(("train", "        model(batch)"), samples=900),
    ]
    found = loop_in(*stacks)
    assert head(found) == (4, None)
    keras = script.stack(("train", "optimizer.step"), inside=KERAS, samples=3)
    assert head(loop_in(keras)) == (4, None)
    assert found is not None
    assert [place.loop.first_line for place in found.around] == [3]
    item = [Frame("Tensor.item", "/x/site-packages/torch/_tensor.py", 99)]
    stacks = [
        script.stack(("train", "        model(batch)"), inside=item, samples=900),
        script.stack(("train", "loss.backward"), inside=BACKWARD),
    ]
    assert head(loop_in(*stacks)) == (4, None)
    assert head(loop_in(script.stack(("train", "loss = model")))) == (4, None)
    assert loop_in(script.stack(("train", "        model(batch)"))) is None
    assert loop_in(script.stack(("train", "loss.backward"), inside=BACKWARD, samples=1)) is None


def test_a_loop_may_be_a_function_further_out_and_imports_say_nothing(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        "def main():\n    for i in range(9):\n        step()\ndef step():\n    loss.backward()\n",
    )
    stack = script.stack(("main", "        step()"), ("step", "loss.backward"), inside=BACKWARD)
    assert head(loop_in(stack)) == (2, None)
    script = Script(tmp_path, "for step in range(9):\n    import torch\n")
    importing = script.stack(
        ("<module>", "import"), inside=[Frame("x", "<frozen importlib._bootstrap>", 1)]
    )
    assert loop_in(importing) is None


def test_steps_are_those_of_the_optimizer_where_gradients_are_accumulated(tmp_path: Path) -> None:
    source = (
        "while True:\n    for micro in range(4):\n        loss.backward()\n    optimizer.step()\n"
    )
    script = Script(tmp_path, source)
    backward = script.stack(("<module>", "loss.backward"), inside=BACKWARD)
    optimizer = script.stack(("<module>", "optimizer.step"), inside=OPTIMIZER, samples=1)
    assert head(loop_in(backward, optimizer)) == (1, 2)
    assert head(loop_in(backward)) == (1, 2)


CHUNKS = """
def main():
    for epoch in range(9):
        train(series)
def train(series):
    if warm:
        for layer in layers:
            layer.reset()
    for group in series:
        for chunk in group:
            loss = model(chunk)
            loss.backward()
    optimizer.step()
"""


def test_loops_of_a_function_that_updates_the_model_beside_them_are_within_a_step(
    tmp_path: Path,
) -> None:
    script = Script(tmp_path, CHUNKS)
    call = ("main", "        train(series)")
    backward = script.stack(call, ("train", "loss.backward"), inside=BACKWARD)
    assert head(loop_in(backward)) == (3, 10)
    assert head(loop_in(backward, script.stack(call, ("train", "loss = model")))) == (3, 10)
    # The update of another loop says nothing of this one.
    script = Script(
        tmp_path,
        CHUNKS.replace("    optimizer.step()", "").replace("layer.reset()", "optimizer.step()"),
    )
    backward = script.stack(call, ("train", "loss.backward"), inside=BACKWARD, samples=20)
    assert head(loop_in(backward)) == (10, None)


def test_loops_of_a_library_that_part_below_the_users_are_within_a_step(tmp_path: Path) -> None:
    script = Script(tmp_path, "for step in range(9):\n    svi.step(data)\n")
    library = tmp_path / "site-packages" / "pyro" / "infer.py"
    library.parent.mkdir(parents=True)
    loops = "def elbo():\n    for trace in traces():\n        loss.backward()\n"
    library.write_text(f"{loops}def step():\n    for p in own:\n        objs[p].step()\n")
    elbo, update = Frame("elbo", str(library), 3), Frame("step", str(library), 6)
    backward = script.stack(("<module>", "svi.step"), inside=[elbo, *BACKWARD])
    optimizer = script.stack(("<module>", "svi.step"), inside=[update, *OPTIMIZER])
    assert head(loop_in(backward, optimizer)) == (1, None)
    # Two loops of the user's are two trainings: that of more backward passes is counted.
    apart = Script(
        tmp_path,
        "for epoch in e():\n    for a in x:\n        a.backward()\n    for b in y:\n        "
        "opt.step()\n",
    )
    backward = apart.stack(("<module>", "a.backward"), inside=BACKWARD)
    optimizer = apart.stack(("<module>", "opt.step"), inside=OPTIMIZER)
    assert head(loop_in(backward, optimizer)) == (2, None)


@pytest.mark.parametrize(
    ("loop", "first_line"),
    [
        ("for opt in opts:\n        scaler.step(opt)", 1),
        ("for opt in opts.values():\n        opt.step()", 1),
        ("for opt in opts:\n        loss(opt).backward()\n        opt.step()", 2),
        ("for part in batch:\n        svi.step(part)", 2),
    ],
)
def test_a_loop_over_the_optimizers_of_a_step_is_none_of_steps(
    tmp_path: Path, loop: str, first_line: int
) -> None:
    script = Script(tmp_path, f"for batch in loader:\n    {loop}\n")
    found = loop_in(script.stack(("<module>", ".step("), inside=OPTIMIZER, samples=3))
    assert head(found) == (first_line, None)


def test_loops_of_and_inside_of_the_optimizer_are_none(tmp_path: Path) -> None:
    script = Script(tmp_path, "def fit():\n    while True:\n        optimizer.step(closure)\n")
    stack = script.stack(
        ("fit", "optimizer.step"), inside=[*OPTIMIZER, Frame("closure", "/x/y.py", 3), *BACKWARD]
    )
    assert head(loop_in(stack)) == (2, None)
    script = Script(tmp_path, "for batch in loader:\n    optimizer.step()\n")
    library = tmp_path / "site-packages" / "torch" / "optim" / "sgd.py"
    library.parent.mkdir(parents=True)
    library.write_text("def step():\n    for parameter in parameters:\n        add()\n")
    inside = [Frame("SGD.step", str(library), 3)]
    assert head(loop_in(script.stack(("<module>", "optimizer.step"), inside=inside))) == (1, None)


def test_without_backward_a_loop_that_is_named_so_is_that_of_steps(tmp_path: Path) -> None:
    source = (
        "def train():\n    for epoch in e():\n        for step in range(9):\n            "
        "work()\n    end()\n"
    )
    epoch = Script(tmp_path, "def train_epoch():\n    for step in range(9):\n        work()\n")
    assert head(loop_in(epoch.stack(("train_epoch", "work()"), inside=[]))) == (2, None)
    script = Script(tmp_path, source)
    stack = script.stack(("train", "work()"), inside=[])
    assert head(loop_in(stack)) == (3, None)
    assert loop_in(stack, script.stack(("train", "end()"), inside=[], samples=9)) is None


def test_a_program_of_torch_is_not_counted_by_names(tmp_path: Path) -> None:
    script = Script(
        tmp_path, "def main():\n    for step, batch in enumerate(loader):\n        model(batch)\n"
    )
    assert loop_in(script.stack(("main", "model(batch)"))) is None
    source = (
        "def wait():\n    for attempt in range(9):\n        for layer_idx in l:\n            "
        "work()\n"
    )
    script = Script(tmp_path, source)
    assert loop_in(script.stack(("wait", "work()"), inside=[])) is None
    evaluating = Script(tmp_path, "def evaluate():\n    for step in range(9):\n        work()\n")
    assert loop_in(evaluating.stack(("evaluate", "work()"), inside=[])) is None
    assert loop_in() is None


def test_a_comprehension_is_in_no_more_loops_than_its_function(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        "def train():\n    while True:\n        batches = [next(loader) for _ in range(2)]\n"
        "        for batch in batches:\n            loss.backward()\n        optimizer.step()\n",
    )
    stacks = [
        script.stack(("train", "batches = "), ("<listcomp>", "batches = "), inside=[]),
        script.stack(("train", "loss.backward"), inside=BACKWARD),
    ]
    assert head(loop_in(*stacks)) == (2, 4)


def test_of_two_loops_the_inner_one_is_taken_where_the_optimizer_is_never_seen(
    tmp_path: Path,
) -> None:
    source = (
        "def run():\n    while True:\n        split()\ndef split():\n    for i in range(2):\n     "
        "   loss.backward()\n"
    )
    script = Script(tmp_path, source)
    calls = ("run", "split()"), ("split", "loss.backward")
    assert loop_in(script.stack(*calls, inside=BACKWARD, samples=19)) is None
    assert head(loop_in(script.stack(*calls, inside=BACKWARD, samples=20))) == (5, None)
    updates = script.stack(("run", "split()"), inside=OPTIMIZER, samples=1)
    assert head(loop_in(script.stack(*calls, inside=BACKWARD, samples=2), updates)) == (2, 5)
