"""Run files behind a URL, in a file system in memory: what is copied, and what is said where
nothing can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from profd.daemon.errors import MissingTool, NoSuchRun, RunUnreadable, UsageError
from profd.daemon.store.remote import fetch, open_url, reaching

URL = "memory://remote/job"


@pytest.fixture
def store() -> Iterator[str]:
    """Give the URL of a folder with two run files, a note and a folder."""
    files, root = fsspec.core.url_to_fs(URL)
    for name, content in (
        ("a.profd", b"one"),
        ("b.profd", b"two"),
        ("notes.txt", b"no run"),
        ("c/d.profd", b"deep"),
    ):
        files.pipe_file(f"{root}/{name}", content)
    yield URL
    files.rm(root, recursive=True)


@pytest.mark.parametrize("end", ["", "/", "/a.profd"])
def test_of_a_file_it_alone_and_of_a_folder_the_run_files_are_copied(
    store: str, end: str, tmp_path: Path
) -> None:
    (into := tmp_path / "here").mkdir()
    copied = {"a.profd": b"one"} if end == "/a.profd" else {"a.profd": b"one", "b.profd": b"two"}
    assert fetch(store + end, into) == (into / "a.profd" if end == "/a.profd" else into)
    assert {path.name: path.read_bytes() for path in into.iterdir()} == copied


def test_a_url_says_its_store_and_its_place_or_why_it_cannot() -> None:
    with pytest.raises(UsageError, match="is no place that can be read"):
        open_url("nosuch://bucket/job")
    with pytest.raises(MissingTool, match="needs a package"):
        open_url("gdrive://bucket/job")
    assert open_url("memory://remote/job/")[1] == "/remote/job"
    assert open_url("/")[1] == "/"


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (OSError(28, "No space left on device"), "because of No space left on device"),
        (ValueError("no key"), "because of no key"),
        (KeyError(), "because of KeyError"),
        (NoSuchRun("none", ""), "none"),
    ],
)
def test_errors_of_a_store_become_ours_and_ours_stay(error: Exception, meant: str) -> None:
    kind = NoSuchRun if isinstance(error, NoSuchRun) else RunUnreadable
    with (
        pytest.raises(kind, match=meant),
        reaching(lambda said: RunUnreadable(f"because of {said}", "")),
    ):
        raise error
