"""Run files behind a URL, in a file system in memory: what is copied, and what is said where nothing can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from profd.daemon.errors import MissingTool, NoSuchRun, RunUnreadable, UsageError
from profd.daemon.store.remote import fetch, open_url, reaching, said_by

URL = "memory://remote/job"


@pytest.fixture
def store() -> Iterator[str]:
    """Give the URL of a folder with two run files, a note and a folder."""
    files, root = fsspec.core.url_to_fs(URL)
    for name, content in (("a.profd", b"one"), ("b.profd", b"two"), ("notes.txt", b"no run"), ("c/d.profd", b"deep")):
        files.pipe_file(f"{root}/{name}", content)
    yield URL
    files.rm(root, recursive=True)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def test_a_file_is_copied_whole(store: str, into: Path) -> None:
    assert fetch(f"{store}/a.profd", into) == into / "a.profd"
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {"a.profd": b"one"}


@pytest.mark.parametrize("end", ["", "/"])
def test_of_a_folder_the_run_files_are_copied_and_nothing_else(store: str, end: str, into: Path) -> None:
    assert fetch(store + end, into) == into
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {"a.profd": b"one", "b.profd": b"two"}


def test_what_is_not_there_cannot_be_read(store: str, into: Path) -> None:
    with pytest.raises(RunUnreadable, match=f"cannot read {store}/none.profd"):
        fetch(f"{store}/none.profd", into)
    assert list(into.iterdir()) == []


def test_a_folder_without_run_files_holds_no_run(store: str, into: Path) -> None:
    files, root = fsspec.core.url_to_fs(store)
    files.rm([f"{root}/a.profd", f"{root}/b.profd"])
    with pytest.raises(NoSuchRun, match="holds no run files"):
        fetch(store, into)


def test_a_url_of_no_store_is_wrong_use_and_one_whose_package_is_missing_says_so() -> None:
    with pytest.raises(UsageError, match="is no place that can be read"):
        open_url("nosuch://bucket/job")
    with pytest.raises(MissingTool, match="needs a package"):
        open_url("gdrive://bucket/job")


def test_the_place_has_no_closing_slash_but_where_it_is_the_root() -> None:
    assert open_url("memory://remote/job/")[1] == "/remote/job"
    assert open_url("/")[1] == "/"


def test_an_error_says_what_it_says_or_its_name() -> None:
    assert said_by(OSError(28, "No space left on device")) == "No space left on device"
    assert said_by(ValueError("no key")) == "no key"
    assert said_by(KeyError()) == "KeyError"


def test_errors_of_a_store_become_ours_and_ours_stay() -> None:
    with (
        pytest.raises(RunUnreadable, match="because of no key"),
        reaching(lambda said: RunUnreadable(f"because of {said}", "")),
    ):
        raise ValueError("no key")
    with pytest.raises(NoSuchRun, match="none"), reaching(lambda said: RunUnreadable(said, "")):
        raise NoSuchRun("none", "")
