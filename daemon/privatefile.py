"""Files that are there whole or not at all, and nobody else's on the way: not their bytes, nor where these go."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(target: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes the place of ``target`` once it is written and on the disk; raises OSError.

    Meanwhile it has a name that nobody can guess, and is its owner's alone unless ``mode`` says more. A failure leaves
    what was there before.
    """
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    name = f".profd-{secrets.token_hex(8)}"
    try:
        made = os.open(name, _FLAGS, mode, dir_fd=folder)
        try:
            with os.fdopen(made, "wb") as file:
                yield file
                file.flush()
                os.fsync(made)
            os.replace(name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        with contextlib.suppress(OSError):  # some file systems know no such thing of a folder
            os.fsync(folder)
    finally:
        os.close(folder)
