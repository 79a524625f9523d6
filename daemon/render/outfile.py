"""Files that are written for the user: whole or not at all, and an error that says what to do instead."""

from __future__ import annotations

from pathlib import Path

from profd.daemon.errors import OutputUnwritable
from profd.daemon.privatefile import replacing


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there: a failure leaves what was there before.

    Pipes and devices are written to directly. Raises OutputUnwritable.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # of a folder the system says so itself
        else:
            with replacing(path.resolve(), mode=0o666) as file:
                file.write(content)
    except OSError as error:
        raise OutputUnwritable(
            f"cannot write {path} ({error.strerror})", "choose another place with -o FILE"
        ) from error
