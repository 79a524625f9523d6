"""Runs inside of a training process: takes one window with the profiler of its torch, and leaves nothing behind.

The text of this file is what profd has a process execute, in a thread and a namespace of its own, so it imports the
standard library alone and nothing of profd, and runs on Python 3.10 and later. Whatever goes wrong in here is written
to the folder that the order names, and never reaches the code of the process.

The inner half of ``torch.profiler.profile`` is used: the outer one imports all of torch's compiler, 900 modules, first.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sys
import threading
from types import ModuleType
from typing import NamedTuple, Protocol

TRACE, REPORT, BEGUN = "trace.json", "report.json", "begun"
_LEAVING_S = 20.0
"""How long the end of the process waits for its window to be written."""


class Order(NamedTuple):
    """A window that is wanted, of ``steps`` optimizer steps or of ``seconds`` where that is given.

    ``folder`` takes the trace and the report; where it is gone, the window is not wanted any more. ``patience_s`` is
    how long steps may take. ``page`` and ``page_bytes`` are the memory that the text came in, 0 where it was a file.
    """

    folder: str
    steps: int
    seconds: float | None
    shapes: bool
    memory: bool
    stacks: bool
    flops: bool
    patience_s: float
    page: int = 0
    page_bytes: int = 0


class Profiler(Protocol):
    """What is used of ``torch.autograd.profiler.profile``."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: None, error: None, traceback: None) -> object: ...

    def export_chrome_trace(self, path: str) -> None:
        """Write what was recorded to a file."""
        ...


class WindowRefused(Exception):
    """No window can be taken of this process; says why."""


class Window:
    """One window, from the first hook to the written trace."""

    def __init__(self, order: Order, torch: ModuleType) -> None:
        self._order = order
        self._torch = torch
        self._pid = os.getpid()
        self._thread = threading.current_thread()
        self._over = threading.Event()
        self._steps = -1
        self._profiler = _make_profiler(torch, order)
        self._is_running = False
        self._error: BaseException | None = None

    def take(self) -> None:
        """Take the window and write its trace; raises WindowRefused, and what torch raises."""
        atexit.register(self._leave)
        try:
            self._record()
        finally:
            atexit.unregister(self._leave)
        self._write()

    def _record(self) -> None:
        """Record until the window is over; the profiler is off again when this ends."""
        try:
            if self._order.seconds is None:
                self._wait_for_steps()
            else:
                self._start()
                self._over.wait(self._order.seconds)
        finally:
            if self._is_running:
                self._profiler.__exit__(None, None, None)
        if self._error is not None:
            raise self._error

    def _wait_for_steps(self) -> None:
        hook = _optimizers().register_optimizer_step_post_hook(self._take_step)
        try:
            is_over = self._over.wait(self._order.patience_s)
        finally:
            hook.remove()
        if not is_over:
            taken = "no step" if self._steps < 0 else f"{self._steps} of {self._order.steps} steps"
            raise WindowRefused(
                f"{taken} of an optimizer of torch's ended within {self._order.patience_s:.0f} s: give --seconds"
            )

    def _take_step(self, *_: object) -> None:
        """Take in that an optimizer is done, on the thread that trains: the first time the window begins."""
        if self._over.is_set() or os.getpid() != self._pid:
            return
        try:
            self._steps += 1
            if self._steps == 0:
                self._start()
            elif self._steps == self._order.steps:
                self._over.set()
        except BaseException as error:  # noqa: BLE001  whatever it is, it is not to stop the training
            self._error = error
            self._over.set()

    def _start(self) -> None:
        # Kineto would cancel the one that is on, without a word to its owner.
        profilers = self._torch.autograd.profiler
        if getattr(profilers, "_is_profiler_enabled", False) or self._torch.autograd._profiler_enabled():
            raise WindowRefused("a profiler of its own is on")
        self._profiler.__enter__()
        self._is_running = True

    def _leave(self) -> None:
        """End the window because the process ends: what was recorded so far is written."""
        self._over.set()
        self._thread.join(_LEAVING_S)

    def _write(self) -> None:
        path = os.path.join(self._order.folder, TRACE)  # noqa: PTH118  pathlib may not have been imported here
        self._profiler.export_chrome_trace(path + ".part")
        os.replace(path + ".part", path)  # noqa: PTH105


def take(order: Order) -> None:
    """Take a window as ordered and report what came of it; raises nothing."""
    error = ""
    try:
        if not _write(order.folder, BEGUN, ""):
            return
        Window(order, _torch_of_this_process()).take()
    except BaseException as caught:  # noqa: BLE001  this thread is not the user's, and shall not speak up in their name
        error = str(caught) or type(caught).__name__
    finally:
        _give_back(order.page, order.page_bytes)
    _write(order.folder, REPORT, json.dumps({"error": error}))


def _torch_of_this_process() -> ModuleType:
    """Return torch, where the process has imported it: profd does not."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise WindowRefused("it has not imported torch")
    if not hasattr(torch._C._profiler, "_ExperimentalConfig"):
        raise WindowRefused(f"its torch {torch.__version__} cannot profile all threads")
    return torch


def _optimizers() -> ModuleType:
    """Return the module of torch's optimizers; ``torch.optim`` has no name for it."""
    module = sys.modules.get("torch.optim.optimizer")
    if module is None or not hasattr(module, "register_optimizer_step_post_hook"):
        raise WindowRefused("its torch tells nobody of steps, which 2.0 and later do: give --seconds")
    return module


def _make_profiler(torch: ModuleType, order: Order) -> Profiler:
    options: dict[str, object] = {
        "record_shapes": order.shapes or order.flops,
        "with_flops": order.flops,
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


def _write(folder: str, name: str, text: str) -> bool:
    """Write a file that is there as a whole or not at all; False where nobody wants it any more."""
    path = os.path.join(folder, name)  # noqa: PTH118
    try:
        with open(path + ".part", "w") as file:  # noqa: PTH123
            file.write(text)
        os.replace(path + ".part", path)  # noqa: PTH105
    except OSError:
        return False
    return True


def _give_back(page: int, page_bytes: int) -> None:
    """Return the memory that the text of this file came in to the system."""
    if not page:
        return
    import ctypes  # torch has imported it already

    unmap = ctypes.CDLL(None).munmap
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    unmap(page, page_bytes)
