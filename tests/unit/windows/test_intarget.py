"""What runs inside of a training process: one window, and then nothing of it is left."""

from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S, until

from profd.daemon.windows import intarget
from profd.daemon.windows.intarget import Order
from profd.daemon.windows.reduction import reduce

pytestmark = pytest.mark.requires("torch")  # which is imported by those alone that run: it takes seconds


class Training:
    """A training that takes steps until it is told to end, on the thread that calls it."""

    def __init__(self) -> None:
        import torch

        self._weight = torch.nn.Parameter(torch.randn(8, 8))
        self._optimizer = torch.optim.SGD([self._weight], lr=0.1)

    def step(self) -> None:
        self._optimizer.zero_grad()
        (self._weight @ self._weight).sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def order(folder: Path, *, steps: int = 3, seconds: float | None = None, patience_s: float = DEADLINE_S) -> Order:
    return Order(str(folder), steps, seconds, True, False, False, True, patience_s)


def take(wanted: Order, training: Training | None = None) -> str:
    """Take a window beside a training; returns the error that is reported."""
    thread = threading.Thread(target=intarget.take, args=(wanted,))
    thread.start()
    while training is not None and thread.is_alive():
        training.step()
    thread.join(DEADLINE_S)
    return str(json.loads((Path(wanted.folder) / intarget.REPORT).read_text())["error"])


def hooks() -> int:
    return len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    Training().step()  # before anything is counted: torch loads some modules lazily
    threads, modules = set(threading.enumerate()), set(sys.modules)
    yield
    assert set(threading.enumerate()) == threads
    assert hooks() == 0
    assert {name for name in set(sys.modules) - modules if "profd" in name} == set()
    assert len(set(sys.modules) - modules) < 20


def test_window_of_steps_holds_them_and_their_operators(tmp_path: Path) -> None:
    assert take(order(tmp_path), Training()) == ""
    with (tmp_path / intarget.TRACE).open("rb") as trace:
        reduction = reduce(trace, begins_with_step=True)
    calls = {operator.name: operator.calls for operator in reduction.operators}
    assert len(reduction.steps) >= 3
    assert calls["Optimizer.step#SGD.step"] == len(reduction.steps)
    assert calls["aten::mm"] >= 3 * len(reduction.steps)
    assert any(operator.input_shapes == "[[8, 8], [8, 8]]" and operator.flops for operator in reduction.operators)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "report.json", "trace.json"]


def test_window_of_seconds_needs_no_optimizer(tmp_path: Path) -> None:
    import torch

    class Products(Training):
        def step(self) -> None:
            torch.ones(4, 4) @ torch.ones(4, 4)

    assert take(order(tmp_path, seconds=0.1), Products()) == ""
    with (tmp_path / intarget.TRACE).open("rb") as trace:
        reduction = reduce(trace, begins_with_step=False)
    assert reduction.end_ns > reduction.start_ns
    assert reduction.steps == ()
    assert "aten::mm" in {operator.name for operator in reduction.operators}


def test_training_without_steps_is_given_up_and_says_what_to_do(tmp_path: Path) -> None:
    error = take(order(tmp_path, patience_s=0.05))
    assert error == "no step of an optimizer of torch's ended within 0 s: give --seconds"
    assert not (tmp_path / intarget.TRACE).exists()


def test_training_that_stops_in_the_middle_leaves_no_profiler_on(tmp_path: Path) -> None:
    class Once(Training):
        steps = 0

        def step(self) -> None:
            if hooks() and self.steps < 2:
                super().step()
                self.steps += 1

    assert "1 of 3 steps" in take(order(tmp_path, patience_s=1.0), Once())
    assert take(order(tmp_path), Training()) == ""


def test_profiler_of_the_user_goes_before(tmp_path: Path) -> None:
    import torch

    with torch.autograd.profiler.profile(use_kineto=True) as theirs:
        assert take(order(tmp_path), Training()) == "a profiler of its own is on"
        assert take(order(tmp_path, seconds=0.01)) == "a profiler of its own is on"
    assert "aten::mm" in {row.key for row in theirs.key_averages()}
    assert take(order(tmp_path), Training()) == ""


def test_process_without_torch_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert take(order(tmp_path)) == "it has not imported torch"


def test_window_that_nobody_wants_any_more_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Order] = []
    monkeypatch.setattr(intarget, "Window", lambda wanted, torch: taken.append(wanted))
    intarget.take(order(tmp_path / "gone"))
    assert taken == []


def test_end_of_the_process_ends_the_window_and_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []
    monkeypatch.setattr(atexit, "register", left.append)
    thread = threading.Thread(target=intarget.take, args=(order(tmp_path, seconds=DEADLINE_S),))
    thread.start()
    (leave,) = until(lambda: left, "a handler of the end of the process")
    assert callable(leave)
    leave()
    assert not thread.is_alive()
    assert (tmp_path / intarget.TRACE).exists()


def test_page_of_the_text_is_given_back(tmp_path: Path) -> None:
    import ctypes

    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    page = library.mmap(None, 8192, 3, 0x22, -1, 0)
    intarget.take(order(tmp_path, patience_s=0.01)._replace(page=page, page_bytes=8192))
    assert library.mmap(page, 8192, 3, 0x100022, -1, 0) == page  # nothing is there: a page can be put there again
    library.munmap(ctypes.c_void_p(page), 8192)
