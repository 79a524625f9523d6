"""A file system whose server never answers: whoever opens anything in it waits, and cannot be killed meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_HEAD = struct.Struct("<IIQ")
_REQUEST = struct.Struct("<IIQQ")
_VERSION = struct.pack("<II", 7, 31) + bytes(56)
_REQUEST_BYTES = 1 << 17


class DeadMount:
    """What was mounted; ``asked`` is set once someone waits for an answer that does not come."""

    def __init__(self, folder: Path, device: int) -> None:
        self.folder = folder
        self.asked = threading.Event()
        self._device = device

    def begin(self) -> None:
        """Say hello to the kernel; what is asked after that goes unanswered."""
        _, _, unique, _ = _REQUEST.unpack_from(os.read(self._device, _REQUEST_BYTES))
        os.write(self._device, _HEAD.pack(_HEAD.size + len(_VERSION), 0, unique) + _VERSION)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._device, _REQUEST_BYTES)
            self.asked.set()


@contextlib.contextmanager
def dead_mount(folder: Path) -> Iterator[DeadMount]:
    """Mount a file system that never answers on a folder; skips the test where nobody may."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no file system can be made here: {error}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _LIBC.mount(b"dead", os.fsencode(folder), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    mount = DeadMount(folder, device)
    try:
        mount.begin()
        yield mount
    finally:
        _LIBC.umount2(os.fsencode(folder), _DETACH)
        os.close(device)  # whoever still waits is told that the file system is gone
