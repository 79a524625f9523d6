"""Fetches run files behind a URL, so that they can be read here.

It does not know what is in them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon import paths
from profd.daemon.errors import MissingTool, NoSuchRun, ProfdError, RunUnreadable, UsageError
from profd.daemon.installation import install_extra

if TYPE_CHECKING:
    import fsspec


def open_url(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system for a URL or path that fsspec knows, and the path in it.

    The path has no trailing slash. Raises MissingTool if fsspec or a package for this URL is
    missing, UsageError if this is no URL or path.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingTool(
            f"{url} needs fsspec, not installed here", install_extra("fleet")
        ) from None
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingTool(f"{url} needs a package that is not installed", str(error)) from None
    except Exception as error:  # noqa: BLE001  see ``reaching``
        raise UsageError(
            f"{url} is no place that can be read ({said_by(error)})", "name a folder or a URL"
        ) from None
    return files, root.rstrip("/") or "/"


@contextlib.contextmanager
def reaching(failure: Callable[[str], ProfdError]) -> Iterator[None]:
    """Raise ``failure`` with the error's message if a store cannot be reached.

    Each kind of store has its own package, whose errors differ: for credentials, for names of
    hosts.
    """
    try:
        yield
    except ProfdError:
        raise
    except Exception as error:  # noqa: BLE001  whatever a store's package raises
        raise failure(said_by(error)) from None


def said_by(error: Exception) -> str:
    """Return the message of an error, or its name if it has no message."""
    return (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or type(error).__name__
    )


def fetch(url: str, into: Path) -> Path:
    """Copy the run file at a URL, or the run files in a folder there, into a folder.

    Returns the copy, or the folder. Raises NoSuchRun if there are none, RunUnreadable if they
    cannot be copied, and the errors of ``open_url``.
    """
    files, root = open_url(url)
    remedy = f"see that it is there, and that {into.parent} has room"
    with reaching(lambda said: RunUnreadable(f"cannot read {url} ({said})", remedy)):
        is_file = files.isfile(root)
        found = (
            [root]
            if is_file
            else sorted(name for name in files.ls(root, False) if name.endswith(paths.SUFFIX))
        )
        copies = {name: into / name.rpartition("/")[2] for name in found}
        for name, copy in copies.items():
            files.get_file(name, os.fspath(copy))
    if not copies:
        raise NoSuchRun(
            f"{url} holds no run files", f"name a file, or a folder with files *{paths.SUFFIX}"
        )
    return copies[root] if is_file else into
