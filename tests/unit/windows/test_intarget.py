"""What runs inside of a training process: one window, and then nothing of it is left."""

from __future__ import annotations

import atexit
import contextlib
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

pytestmark = pytest.mark.requires(
    "torch"
)  # which is imported by those alone that run: it takes seconds


class Training:
    """A training that takes steps until it is ended, on the thread that calls it."""

    def __init__(self) -> None:
        import torch

        self._weight = torch.nn.Parameter(torch.randn(8, 8))
        self._optimizer = torch.optim.SGD([self._weight], lr=0.1)

    def step(self) -> None:
        self._optimizer.zero_grad()
        (self._weight @ self._weight).sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def order(
    folder: Path, *, steps: int = 3, seconds: float | None = None, patience_s: float = DEADLINE_S
) -> Order:
    return Order(str(folder), steps, seconds, True, False, False, patience_s)


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
    assert "[[8, 8], [8, 8]]" in {operator.input_shapes for operator in reduction.operators}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "begun",
        "report.json",
        "trace.json",
    ]


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


@pytest.mark.parametrize(("steps", "taken"), [(1, "no step"), (3, "1 of 3 steps")])
def test_training_that_stops_in_the_middle_leaves_no_profiler_on(
    tmp_path: Path, steps: int, taken: str
) -> None:
    class Once(Training):
        steps = 0

        def step(self) -> None:
            if hooks() and self.steps < steps:
                super().step()
                self.steps += 1

    assert take(order(tmp_path, patience_s=1.0), Once()).startswith(taken)
    assert take(order(tmp_path), Training()) == ""


class FakeProfiler:
    """Notes what is done with it, with how many steps were made and the GPU that is the current
    one.
    """

    def __init__(self, gpus: FakeGpus, steps: list[None]) -> None:
        self._gpus = gpus
        self._steps = steps
        self.calls: list[tuple[str, int, int]] = []

    def _prepare_trace(self) -> None:
        self._note("prepare")

    def _start_trace(self) -> None:
        self._note("start")

    def __exit__(self, *_: object) -> None:
        self._note("end")

    def export_chrome_trace(self, path: str) -> None:
        Path(path).touch()

    def _note(self, what: str) -> None:
        self.calls.append((what, len(self._steps), getattr(self._gpus.current, "gpu", 0)))


class FakeGpus:
    """Stands in for ``torch.cuda`` of a process that has contexts on some of its GPUs.

    Each thread begins on GPU 0.
    """

    def __init__(self, used: tuple[int, ...]) -> None:
        self.used = used
        self.current = threading.local()
        self.waited: list[int] = []

    @contextlib.contextmanager
    def device(self, gpu: int) -> Iterator[None]:
        self.current.gpu = gpu
        yield
        del self.current.gpu


@pytest.mark.parametrize("seconds", [None, 0.01])
@pytest.mark.parametrize("used", [(3,), (1, 2), ()])
def test_profiler_warms_up_for_a_step_and_ends_where_the_process_has_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: tuple[int, ...], seconds: float | None
) -> None:
    import torch

    gpus, steps = FakeGpus(used), list[None]()
    profiler = FakeProfiler(gpus, steps)
    monkeypatch.setattr(intarget, "_make_profiler", lambda *_: profiler)
    monkeypatch.setattr(intarget, "_WARM_UP_S", 0.01)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "synchronize", gpus.waited.append)
    monkeypatch.setattr(torch.cuda, "device", gpus.device)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda gpu: gpu in used, raising=False)

    class Counted(Training):
        def step(self) -> None:
            if not steps or hooks():
                super().step()
                steps.append(None)

    assert take(order(tmp_path, seconds=seconds), Counted()) == ""
    (_, ready, _), (_, started, _), (last, _, gpu) = profiler.calls
    assert (last, gpu) == ("end", max(used, default=0))
    assert gpus.waited == list(used)
    if seconds is None:
        assert started == ready + 1


def test_profiler_of_the_user_goes_before(tmp_path: Path) -> None:
    import torch

    with torch.autograd.profiler.profile(use_kineto=True) as theirs:
        assert take(order(tmp_path), Training()) == "a profiler of its own is on"
        assert take(order(tmp_path, seconds=0.01)) == "a profiler of its own is on"
    assert "aten::mm" in {row.key for row in theirs.key_averages()}
    assert take(order(tmp_path), Training()) == ""


def test_window_without_torch_or_that_nobody_wants_any_more_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Order] = []
    monkeypatch.setattr(intarget, "Window", lambda wanted, torch: taken.append(wanted))
    intarget.take(order(tmp_path / "gone"))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert take(order(tmp_path)) == "it has not imported torch"
    assert taken == []


def test_end_of_the_process_ends_the_window_and_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (
        library.mmap(page, 8192, 3, 0x100022, -1, 0) == page
    )  # nothing is there: a page can be put there again
    library.munmap(ctypes.c_void_p(page), 8192)
