"""Runs inside a training process: takes one window with the profiler of its torch.

It leaves nothing behind.

The training process executes the text of this file in a thread and a namespace of its own. So the
file imports only the standard library, nothing of profd, and runs on Python 3.10 and later. An
error is written to the folder of the order. It never reaches the code of the process.

The file uses the inner half of ``torch.profiler.profile``. The outer half would import torch's
compiler, 900 modules.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import os
import sys
import threading
from contextlib import AbstractContextManager
from types import ModuleType
from typing import NamedTuple, Protocol

TRACE, REPORT, BEGUN = "trace.json", "report.json", "begun"
_WARM_UP_S = 0.5
"""How long the profiler is ready before a window of seconds: the first calls then take longer."""


class Order(NamedTuple):
    """The order for a window of ``steps`` optimizer steps, or of ``seconds`` if that is given.

    ``folder`` is for the trace and the report; if it is gone, the window is not wanted any more.
    ``patience_s`` is the timeout of the steps. ``page`` and ``page_bytes`` are the memory that the
    text came in, 0 if it was a file.
    """

    folder: str
    steps: int
    seconds: float | None
    shapes: bool
    memory: bool
    stacks: bool
    patience_s: float
    page: int = 0
    page_bytes: int = 0


class Profiler(Protocol):
    """The part of ``torch.autograd.profiler.profile`` that is used here."""

    def _prepare_trace(self) -> None: ...

    def _start_trace(self) -> None: ...

    def __exit__(self, kind: None, error: None, traceback: None) -> object: ...

    def export_chrome_trace(self, path: str) -> None: ...


class NoWindow(Exception):
    """No window can be taken of this process; the text says why."""


class Window:
    """One window, from the first hook to the written trace."""

    def __init__(self, order: Order, torch: ModuleType) -> None:
        self._order = order
        self._torch = torch
        self._pid = os.getpid()
        self._thread = threading.current_thread()
        self._over = threading.Event()
        self._steps = -2  # one to warm up, and the end of the one before
        self._profiler = _make_profiler(torch, order)
        self._is_ready = self._is_running = False
        self._error: BaseException | None = None

    def take(self) -> None:
        """Take the window and write its trace; raises NoWindow, and what torch raises."""
        atexit.register(self._leave)
        try:
            if self._order.seconds is None:
                self._wait_for_steps()
            else:
                self._prepare()
                self._over.wait(_WARM_UP_S)
                self._start()
                self._over.wait(self._order.seconds)
        finally:
            try:
                with _on_used_device(self._torch):
                    self._stop()
            finally:
                atexit.unregister(self._leave)
        if self._error is not None:
            raise self._error
        # The process may not have imported pathlib.
        path = os.path.join(self._order.folder, TRACE)  # noqa: PTH118
        self._profiler.export_chrome_trace(path + ".part")
        os.replace(path + ".part", path)  # noqa: PTH105

    def _wait_for_steps(self) -> None:
        optimizers = sys.modules.get("torch.optim.optimizer")  # ``torch.optim`` has no name for it
        if optimizers is None or not hasattr(optimizers, "register_optimizer_step_post_hook"):
            raise NoWindow("its torch reports no steps, which 2.0 and later do: give --seconds")
        hook = optimizers.register_optimizer_step_post_hook(self._take_step)
        try:
            is_over = self._over.wait(self._order.patience_s)
        finally:
            hook.remove()
        if not is_over:
            taken = "no step" if self._steps < 0 else f"{self._steps} of {self._order.steps} steps"
            within = f"within {self._order.patience_s:.0f} s"
            raise NoWindow(f"{taken} of an optimizer of torch's ended {within}: give --seconds")

    def _take_step(self, *_: object) -> None:
        """Count a step that an optimizer has ended, on the thread that trains.

        The window begins with the second.
        """
        if self._over.is_set() or os.getpid() != self._pid:
            return
        try:
            self._steps += 1
            if self._steps == -1:
                self._prepare()
            elif self._steps == 0:
                self._start()
            elif self._steps == self._order.steps:
                self._over.set()
        except BaseException as error:  # noqa: BLE001  no error may stop the training
            self._error = error
            self._over.set()

    def _prepare(self) -> None:
        self._check_free()
        self._profiler._prepare_trace()
        self._is_ready = True

    def _start(self) -> None:
        self._check_free()
        self._profiler._start_trace()
        self._is_running = True

    def _stop(self) -> None:
        if self._is_ready and not self._is_running:  # nothing but a trace ends what was prepared
            self._start()
        if self._is_running:
            self._profiler.__exit__(None, None, None)

    def _check_free(self) -> None:
        """Raise NoWindow if a profiler is on: Kineto would silently cancel it."""
        profilers = self._torch.autograd.profiler
        if (
            getattr(profilers, "_is_profiler_enabled", False)
            or self._torch.autograd._profiler_enabled()
        ):
            self._is_ready = False
            raise NoWindow("a profiler of its own is on")

    def _leave(self) -> None:
        """End the window because the process ends; wait until the events so far are written."""
        self._over.set()
        self._thread.join(20.0)


def take(order: Order) -> None:
    """Take a window and report its error, if any; raises nothing."""
    error = ""
    try:
        if not _write(order.folder, BEGUN, ""):
            return
        torch = sys.modules.get("torch")  # profd does not import it
        if torch is None:
            raise NoWindow("it has not imported torch")
        if not hasattr(torch._C._profiler, "_ExperimentalConfig"):
            raise NoWindow(f"its torch {torch.__version__} cannot profile all threads")
        Window(order, torch).take()
    except BaseException as caught:  # noqa: BLE001  the user's stderr shows none of ours
        error = str(caught) or type(caught).__name__
    finally:
        _give_back(order.page, order.page_bytes)
    _write(order.folder, REPORT, json.dumps({"error": error}))


def _make_profiler(torch: ModuleType, order: Order) -> Profiler:
    options: dict[str, object] = {
        "record_shapes": order.shapes,
        "profile_memory": order.memory,
        "with_stack": order.stacks,
        "use_kineto": True,
        "experimental_config": torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
    }
    profile = torch.autograd.profiler.profile
    if torch.cuda.is_initialized():
        knows_devices = "use_cuda" not in inspect.signature(profile).parameters
        options.update({"use_device": "cuda"} if knows_devices else {"use_cuda": True})
    profiler: Profiler = profile(**options)
    return profiler


def _on_used_device(torch: ModuleType) -> AbstractContextManager[object]:
    """Wait for the GPUs that the process uses, and return the block of one of them.

    A profiler that ends waits for the current GPU. In a new thread that is the first of all, on
    which it would take some 500 MB if the process trains on another one.
    """
    if not torch.cuda.is_initialized():
        return contextlib.nullcontext()
    used = [
        gpu for gpu in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(gpu)
    ]
    for gpu in used:
        torch.cuda.synchronize(gpu)
    block: AbstractContextManager[object] = (
        torch.cuda.device(used[-1]) if used else contextlib.nullcontext()
    )
    return block


def _write(folder: str, name: str, text: str) -> bool:
    """Write a file as a whole or not at all; False if the folder is gone."""
    path = os.path.join(folder, name)  # noqa: PTH118
    try:
        with open(path + ".part", "w") as file:  # noqa: PTH123
            file.write(text)
        os.replace(path + ".part", path)  # noqa: PTH105
    except OSError:
        return False
    return True


def _give_back(page: int, page_bytes: int) -> None:
    """Unmap the memory that the text of this file came in."""
    if not page:
        return
    import ctypes  # torch has imported it already

    unmap = ctypes.CDLL(None).munmap
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    unmap(page, page_bytes)
