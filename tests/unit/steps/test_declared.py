"""Loops as source files declare them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.steps.declared import Counter, Declared, Loop


def loops_at(folder: Path, source: str, text: str, name: str = "train") -> tuple[Loop, ...]:
    """Return the loops around the line with a text."""
    file = folder / "train.py"
    file.write_text(source)
    line = next(number for number, one in enumerate(source.splitlines(), 1) if text in one)
    return Declared().function_at(str(file), name, line).around(line)


def counters(folder: Path, head: str, *body: str) -> tuple[Counter, ...]:
    """Return what a loop with this head and body counts by."""
    source = "\n    ".join(
        ["def train(loader, n, args):", head, *(f"    {line}" for line in (*body, "work()"))]
    )
    (loop,) = loops_at(folder, source, "work()")
    return loop.counters


@pytest.mark.parametrize(
    ("head", "counter"),
    [
        ("for i in range(n):", Counter("i", 1, 0)),
        ("for i in range(5000, n):", Counter("i", 1, 5000)),
        ("for i in range(start, n):", Counter("i", 1, None)),
        ("for i in range(0, n, 32):", Counter("i", 32, 0)),
        ("for i in range(0, n, batch):", Counter("i", "batch", 0)),
        ("for i, batch in enumerate(loader):", Counter("i", 1, 0)),
        ("for i, (x, y) in enumerate(loader, 1):", Counter("i", 1, 1)),
        ("for i, batch in tqdm(enumerate(loader, start=3), total=n):", Counter("i", 1, 3)),
        ("for i in tqdm.trange(n):", Counter("i", 1, 0)),
        ("for i in itertools.count(7, 2):", Counter("i", 2, 7)),
        ("for begin_step, end_step, data in epoch_iterator:", Counter("begin_step", 1, None)),
        ("for batch_idx, batch in fabric.wrap(loader):", Counter("batch_idx", 1, None)),
    ],
)
def test_a_loop_counts_by_what_it_is_given(tmp_path: Path, head: str, counter: Counter) -> None:
    assert counters(tmp_path, head) == (counter,)


@pytest.mark.parametrize(
    ("line", "name", "stride"),
    [
        ("step += 1", "step", 1),
        ("step = step + 1", "step", 1),
        ("seen += 32", "seen", 32),
    ],
)
def test_a_loop_counts_by_what_it_adds_to(
    tmp_path: Path, line: str, name: str, stride: int
) -> None:
    assert counters(tmp_path, "while True:", line) == (
        Counter(name, stride, None, is_added=True, is_late=False),
    )
    assert counters(tmp_path, "while True:", "x.backward()", line)[0].is_late


@pytest.mark.parametrize(
    ("head", "body"),
    [
        *(
            ("for x, step in loader:", ()),
            ("for step_size, x in loader:", ()),
            ("for steps, x in loader:", ()),
        ),
        *(
            ("for batch in loader:", ()),
            ("for i in range(n, 0, -1):", ()),
            ("for i in range(n):", ("i = f(i)",)),
            ("for i in range(0, n, args.batch):", ()),
            ("for self.iter in range(n):", ()),
            ("while True:", ("self.state.global_step += 1",)),
        ),
        *(("for i in range(n):", ("for i in range(3): pass",)), ("while True:", ("step += size",))),
        *(("while True:", ("left -= 1",)), ("while True:", ("if x: step += 1",))),
        *(
            ("while True:", ("if x: continue", "step += 1")),
            ("while True:", ("tries += 1", "if x: tries = 0")),
        ),
        *(
            ("while True:", ("step += 1", "if x: step += 1")),
            ("while True:", ("for _ in range(3): step += 1",)),
        ),
    ],
)
def test_what_does_not_go_up_in_each_round_counts_nothing(
    tmp_path: Path, head: str, body: tuple[str, ...]
) -> None:
    assert counters(tmp_path, head, *body) == ()


@pytest.mark.parametrize(
    ("condition", "every"),
    [
        *(
            (None, None),
            ("if (i + 1) % 4 == 0:", 4),
            ("if (i + 1) % args.accumulate == 0:", ""),
        ),
        *(
            ("if not i % k or last:", "k"),
            ("if self.is_due:", ""),
            ("if i > 3:", ""),
            ("if is_due():", ""),
        ),
        *(
            ("if use_amp:", None),
            ("if args.use_optimizer and not cfg['dry']:", None),
            ("if scaler is not None:", None),
        ),
    ],
)
def test_a_loop_says_in_which_rounds_the_model_is_updated(
    tmp_path: Path, condition: str | None, every: object
) -> None:
    source = ["def train():", "    for i in range(9):", "        loss.backward()"]
    indent = "        "
    if condition:
        source.append(f"{indent}{condition}")
        indent += "    "
    source += [
        f"{indent}self.optimizer.step()",
        f"{indent}updates += 1",
        f"{indent}scheduler.step()",
    ]
    (loop,) = loops_at(tmp_path, "\n".join(source), "loss.backward()")
    assert loop.updates
    assert loop.every == every
    assert loop.counters[0] == Counter(
        "updates", 1, None, is_added=True, is_late=True, of_updates=every is not None
    )


def test_an_update_with_a_scaler_or_without_is_one_of_each_round(tmp_path: Path) -> None:
    body = ("if self.scaler:", "    self.scaler.step(optimizer)", "else:", "    optimizer.step()")
    source = [
        "def train():",
        "    for i in range(9):",
        *(f"        {line}" for line in ("loss.backward()", *body)),
    ]
    (loop,) = loops_at(tmp_path, "\n".join(source), "loss.backward()")
    assert (loop.updates, loop.every) == (True, None)
    (loop,) = loops_at(tmp_path, "\n".join(source[:-2]), "loss.backward()")
    assert (loop.updates, loop.every) == (True, "")


def test_what_another_loop_sets_too_counts_nothing(tmp_path: Path) -> None:
    source = """
def train():
    step = 0
    for epoch in range(9):
        for step, batch in enumerate(loader):
            work()
        for step, batch in enumerate(others):
            evaluate()
"""
    outer, inner = loops_at(tmp_path, source, "work()")
    assert [one.name for one in outer.counters] == ["epoch"]
    assert inner.counters == ()


def test_what_a_function_inside_does_is_none_of_a_loop(tmp_path: Path) -> None:
    source = """
def train():
    for i in range(9):
        def inner():
            step = 1
            work(step)
        inner()
        other()
class Other:
    def train(self):
        pass
"""
    assert loops_at(tmp_path, source, "work(step)", "inner") == ()
    assert [loop.counters[0].name for loop in loops_at(tmp_path, source, "other()")] == ["i"]
    assert loops_at(tmp_path, source, "pass") == ()


def test_an_iterator_with_a_name_is_what_was_last_assigned_to_it(tmp_path: Path) -> None:
    source = """
def train():
    bar = 3
    bar = tqdm(enumerate(loader))
    for i, x in bar:
        work()
"""
    (loop,) = loops_at(tmp_path, source, "work()")
    assert loop.counters == (Counter("i", 1, 0),)


@pytest.mark.parametrize(
    "source", ["def train(:\n    work()", "print 1\nwork()", "for i in range(3): work()", ""]
)
def test_what_is_no_loop_of_this_python_declares_nothing(tmp_path: Path, source: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert Declared().function_at(str(file), "<module>", 2).around(2) == ()
    assert Declared().function_at(str(tmp_path / "none.py"), "train", 1).loops == ()
