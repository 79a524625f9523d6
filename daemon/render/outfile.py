"""Files that are written for the user: whole or not at all, and an error that says what to do instead."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from profd.daemon.errors import OutputUnwritable


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there: a failure leaves what was there before.

    Pipes and devices are written to directly. Raises OutputUnwritable.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # of a folder the system says so itself
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {path} ({error.strerror})", "choose another place with -o FILE"
        ) from error


def _replace(target: Path, content: bytes) -> None:
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        beside.write_bytes(content)
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
