"""How often tensors of a running program of torch's were changed, and what its optimizer counts."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from support.interpreters import Program, standing

from profd.daemon.interpreter.integers import Variable
from profd.daemon.interpreter.objects import Missing
from profd.daemon.interpreter.tensors import TensorVersion, first_of_list, version_of
from profd.daemon.stacks.origin import origin_of
from profd.daemon.steps import sources
from profd.daemon.steps.declared import Declared

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

# The functions that change the tensors wait each time, so that the step is seen at work.
PROGRAM = """
import sys, torch
plain, counted = torch.zeros(3), torch.tensor(0.0)
layer = torch.nn.Linear(2, 2)
frozen, trained = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
tensors, nothing, number = [plain], [], [7]
for _ in range(5):
    plain.add_(1)
for _ in range(100):
    counted += 1

def waiting(original):
    def changes(*args, **kwargs):
        original(*args, **kwargs)
        ready()
    return changes

ready()
for of, name in (("adam", "_single_tensor_adam"), ("adam", "_fused_adam"), ("sgd", "_single_tensor_sgd")):
    module = sys.modules["torch.optim." + of]
    setattr(module, name, waiting(getattr(module, name)))
scaled = torch.optim.Adam([trained], fused=True)
optimizers = [torch.optim.AdamW([frozen, trained], foreach=False),
              torch.optim.SGD([frozen, trained], foreach=False), scaled]
scaled.found_inf = torch.tensor(0.0)
for optimizer in optimizers:
    for _ in range(3):
        trained.grad = torch.ones(2)
        optimizer.step()
"""


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with standing(PROGRAM) as running:
        yield Program(running)


def version(program: Program, name: str) -> int:
    found = program.object_of(name)
    return version_of(program.python, TensorVersion(found.address, found.type))


def test_a_tensor_says_how_often_it_was_changed_and_nothing_else_does(program: Program) -> None:
    assert version(program, "plain") == 5
    assert version(program, "counted") == 100
    assert version(program, "frozen") == 0
    found = first_of_list(program.python, program.object_of("tensors"))
    assert found == program.object_of("plain")
    for name in ("layer", "tensors", "torch"):
        with pytest.raises(Missing):
            version(program, name)
    for name in ("nothing", "plain"):
        with pytest.raises(Missing):
            first_of_list(program.python, program.object_of(name))


def test_an_optimizer_at_work_counts_its_steps(program: Program) -> None:
    training = sources.Program(program.running.pid, Declared(origin=origin_of(program.running.pid)))
    assert training.optimizer_steps() is None
    seen: list[tuple[str, int, Variable]] = []
    counts = []
    for _ in range(9):
        program.running.go_on()
        source = training.optimizer_steps()
        assert source is not None
        seen.append((source.name, source.stride, source.variable))
        counts.append(training.round_of(source))
    names = [(name.partition("torch/")[2], stride) for name, stride, _ in seen]
    # With gradients that may be infinite a fused one changes its count twice a step.
    assert names == [
        *[("optim/adam.py)", 1)] * 3,
        *[("optim/sgd.py)", 1)] * 3,
        *[("optim/adam.py)", 2)] * 3,
    ]
    assert len({variable for _, _, variable in seen}) == 3
    assert counts[:3] == counts[6:] == [1, 2, 3]
    # Adam has changed this parameter before.
    assert [count - (counts[3] or 0) for count in counts[3:6] if count] == [0, 1, 2]
