"""The one way to NVML: the driver's library behind one kind of question, whose answer may be None.

Owns loading, the sorting of errors, and the memory of what a device lacks. Must not know what is asked, how often, or
what becomes of the answers. No question raises: a missing function, a device without a feature, a lost GPU and a
driver that went away are all None, and ``failure`` and ``Handle.lost`` say which of the last two it was.
"""

from __future__ import annotations

import contextlib
from typing import Any, TypeAlias

from profd.daemon.clock import Clock

Answer: TypeAlias = Any
"""What NVML's module takes and gives: numbers, text, C structures; it has no types of its own."""

_LACKING = (
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "FUNCTION_NOT_FOUND",
    "CORRUPTED_INFOROM",
    "VGPU_ECC_NOT_SUPPORTED",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
)
"""The device, or its driver, will answer so for ever: not asked again."""
_LOST = ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND")
_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH")

LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED, NO_PERMISSION, VERSION_MISMATCH = 12, 9, 4, 18
NO_MODULE = -1
"""Codes of ``Nvml.failure``: NVML's own, and one for Python without the module that talks to it."""


class Handle:
    """NVML's handle of one device, and what is known of its answers. ``lost`` is the error that made it unreachable."""

    __slots__ = ("lacking", "lost", "pointer")

    def __init__(self, pointer: Answer) -> None:
        self.pointer = pointer
        self.lost: str | None = None
        self.lacking: set[tuple[str, tuple[Answer, ...]]] = set()


class Call:
    """A call into NVML that has not returned: which, and since when."""

    __slots__ = ("function", "since_ns")

    def __init__(self, function: str, since_ns: int) -> None:
        self.function = function
        self.since_ns = since_ns


class Nvml:
    """NVML, once it is open. Belongs to one thread; ``calling`` alone is for others to read.

    ``failure`` is the code of the error by which the whole of it cannot be used (any more), and ``failure_text`` NVML's
    words for it; both are empty while it works.
    """

    def __init__(self, clock: Clock) -> None:
        """Prepare; nothing is loaded before ``open``."""
        self.calling: Call | None = None
        self.failure: int | None = None
        self.failure_text = ""
        self.module: Answer = None
        self._clock = clock
        self._is_open = False

    def open(self) -> bool:
        """Load the library and initialize it; False where that fails."""
        self.failure, self.failure_text = None, ""
        try:
            # Here and not above: a machine without a GPU, and `--help`, need none of its 8,000 lines.
            import pynvml
        except ImportError as error:
            self.failure, self.failure_text = NO_MODULE, str(error)
            return False
        self.module = pynvml
        self._lacking = self._codes(_LACKING)
        self._lost = self._codes(_LOST)
        self._gone = self._codes(_GONE)
        self._mismatch = getattr(pynvml, "NVMLLibraryMismatchError", ())
        try:
            self._call("nvmlInit", ())
        except pynvml.NVMLError as error:
            self._fail(error)
            return False
        self._is_open = True
        return True

    def close(self) -> None:
        """Let the library go. The process keeps it loaded, as NVML's module does."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(self.module.NVMLError):  # it is gone already
                self._call("nvmlShutdown", ())

    def ask(self, handle: Handle, function: str, *what: Answer, then: tuple[Answer, ...] = ()) -> Answer:
        """Return the answer of a function of NVML about a device; None where there is none.

        ``what`` says which of the function's quantities is meant and is remembered with the function where the device
        lacks it; ``then`` are arguments that change with each question.
        """
        key = (function, what)
        if self.failure is not None or handle.lost is not None or key in handle.lacking:
            return None
        try:
            return self._call(function, (handle.pointer, *what, *then))
        except self.module.NVMLError as error:
            if error.value in self._lacking:
                handle.lacking.add(key)
            elif error.value in self._lost:
                handle.lost = _words(error)
            else:
                self._take_error(error)
            return None

    def ask_driver(self, function: str, *arguments: Answer) -> Answer:
        """Return the answer of a function of NVML that is about no device in particular; None where there is none."""
        if self.failure is not None:
            return None
        try:
            return self._call(function, arguments)
        except self.module.NVMLError as error:
            self._take_error(error)
            return None

    def _call(self, function: str, arguments: tuple[Answer, ...]) -> Answer:
        call = getattr(self.module, function, None)
        if call is None:  # the module is older than the question
            raise self._missing()
        self.calling = Call(function, self._clock.now_ns())
        try:
            return call(*arguments)
        except self._mismatch:  # the driver is
            raise self._missing() from None
        finally:
            self.calling = None

    def _missing(self) -> Exception:
        error: Exception = self.module.NVMLError(self.module.NVML_ERROR_FUNCTION_NOT_FOUND)
        return error

    def _take_error(self, error: Answer) -> None:
        """Notice where an error means that there is no driver any more; any other may be gone next time."""
        if error.value in self._gone:
            self._fail(error)

    def _fail(self, error: Answer) -> None:
        self.failure, self.failure_text = int(error.value), _words(error)

    def _codes(self, names: tuple[str, ...]) -> frozenset[int]:
        codes = (getattr(self.module, f"NVML_ERROR_{name}", None) for name in names)
        return frozenset(code for code in codes if code is not None)


def _words(error: Answer) -> str:
    """Return NVML's own words for an error, as part of a sentence."""
    words = str(error).rstrip(".").split()
    return " ".join(word if word.isupper() else word.lower() for word in words)
