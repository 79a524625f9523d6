"""Run files that lie behind a URL: brought here to be read. Knows nothing of what stands in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from profd.daemon import paths
from profd.daemon.errors import MissingTool, RunUnreadable, UsageError

if TYPE_CHECKING:
    import fsspec


def open_url(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return what reads and writes at a URL or path that fsspec knows, and the path there, without a closing slash.

    Raises MissingTool without fsspec or what it needs for this URL, UsageError where it is none.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingTool(f"{url} needs fsspec, not installed here", "pip install 'profd[fleet]'") from None
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingTool(f"{url} needs a package that is not installed", str(error)) from None
    except ValueError as error:
        raise UsageError(f"{url} is no place that can be read ({error})", "name a folder or a URL") from None
    return files, root.rstrip("/") or "/"


def fetch(url: str, into: Path) -> Path:
    """Copy the run file at a URL, or the run files in a folder there, into a folder; returns the copy, or the folder.

    Raises RunUnreadable where there are none or they cannot be brought here, and what ``open_url`` does.
    """
    files, root = open_url(url)
    try:
        is_file = files.isfile(root)
        found = [root] if is_file else sorted(name for name in files.ls(root, False) if name.endswith(paths.SUFFIX))
        copies = {name: into / name.rpartition("/")[2] for name in found}
        for name, copy in copies.items():
            files.get_file(name, os.fspath(copy))
    except OSError as error:
        raise RunUnreadable(
            f"cannot read {url} ({error.strerror or error})", f"see that it is there, and that {into.parent} has room"
        ) from None
    if not copies:
        raise RunUnreadable(f"{url} holds no run files", f"name a file, or a folder with files *{paths.SUFFIX}")
    return copies[root] if is_file else into
