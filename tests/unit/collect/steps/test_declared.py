"""Counters of loops, as source files declare them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from profd.daemon.collect.steps.declared import PARSED_AT_ONCE, Declared

LOOP = """
    def train(loader, epochs):
        total = 0
        for {head}:
            total += len(batch)
            work()
            {inside}
        return total
"""


def around(tmp_path: Path, source: str, line: int, function: str = "train") -> frozenset[str]:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(source).strip())
    return Declared().counters_at(str(path), function, line).declared


@pytest.mark.parametrize(
    ("head", "counter"),
    [
        ("i in range(epochs)", "i"),
        ("number, (images, labels) in enumerate(loader)", "number"),
        ("step, batch in enumerate(tqdm(loader))", "step"),
        ("step, batch in tqdm(enumerate(loader), total=3)", "step"),
        ("step in tqdm.trange(epochs)", "step"),
        ("step in itertools.count(1)", "step"),
        ("batch in loader", None),
        ("batch in tqdm(loader)", None),
        ("state.step in range(epochs)", None),
    ],
)
def test_a_loop_counts_by_what_takes_up_numbers(tmp_path: Path, head: str, counter: str | None) -> None:
    source = LOOP.format(head=head, inside="pass")
    assert around(tmp_path, source, 4) == ({counter} if counter else set())


@pytest.mark.parametrize(
    ("inside", "counters"),
    [("step += 1", {"step"}), ("if due: step += 1", {"step"}), ("step += size", set()), ("step -= 1", set())],
)
def test_a_loop_counts_by_what_goes_up_in_it(tmp_path: Path, inside: str, counters: set[str]) -> None:
    assert around(tmp_path, LOOP.format(head="batch in loader", inside=inside), 5) == counters
    assert around(tmp_path, LOOP.format(head="batch in loader", inside=inside), 2) == set()


def test_all_loops_around_a_line_count_and_no_others(tmp_path: Path) -> None:
    source = """
    import torch

    class Trainer:
        @torch.enable_grad()
        def train(self):
            step = 0
            for epoch in range(3):
                for i, batch in enumerate(self.loader):
                    self.work()
                    step += 1
                for j in range(4):
                    self.evaluate()
            while step < 9:
                step += 1
    """
    assert around(tmp_path, source, 9) == {"epoch", "i", "step"}
    assert around(tmp_path, source, 12) == {"epoch", "j", "step"}
    assert around(tmp_path, source, 14) == {"step"}
    assert around(tmp_path, source, 6) == set()


@pytest.mark.parametrize(
    ("line", "current"), [(3, set()), (4, {"epoch"}), (5, {"epoch"}), (6, {"epoch", "i"}), (7, {"epoch"}), (8, set())]
)
def test_a_loop_that_waits_for_its_next_round_shows_the_one_before(
    tmp_path: Path, line: int, current: set[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "def train(loader):\n    build()\n    for epoch in range(3):\n        for i, batch in enumerate(\n"
        "            loader):\n            step(batch)\n        evaluate()\n    for i in range(3): step(i)\n"
    )
    assert Declared().counters_at(str(path), "train", line).current == current


def test_what_cannot_be_parsed_or_read_tells_nothing(tmp_path: Path) -> None:
    assert around(tmp_path, "def train():\n    for i in range(3:\n        work()", 3) == set()
    assert Declared().counters_at(str(tmp_path / "none.py"), "train", 3).declared == set()
    assert Declared().counters_at("<string>", "train", 3).declared == set()


def test_a_few_functions_are_parsed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "".join(f"def f{k}():\n    for i in range(3):\n        work()\n" for k in range(PARSED_AT_ONCE + 1))
    )
    declared = Declared()
    found = [declared.counters_at(str(path), f"f{k}", 3 * k + 3).declared for k in range(PARSED_AT_ONCE + 1)]
    assert found == [*[{"i"}] * PARSED_AT_ONCE, set()]
    # Those that were parsed are known, whatever line of them is asked for.
    assert declared.counters_at(str(path), "f0", 2).declared == {"i"}
    declared.allow_more()
    assert declared.counters_at(str(path), f"f{PARSED_AT_ONCE}", 3 * PARSED_AT_ONCE + 3).declared == {"i"}


def test_a_function_steps_by_a_loop_unless_it_waits_off_the_stack(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "def train():\n    for i in range(3):\n        work()\n    evaluate()\n\n\n"
        "def feed():\n    for i in range(3):\n        yield work()\n"
    )
    declared = Declared()
    assert declared.steps_by(str(path), "train", 3, "i")
    assert not declared.steps_by(str(path), "train", 3, "j")
    assert not declared.steps_by(str(path), "train", 4, "i")
    assert not declared.steps_by(str(path), "feed", 9, "i")
    assert declared.counters_at(str(path), "feed", 9).declared == {"i"}
