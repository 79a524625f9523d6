"""The folder where profd and a process of another user meet, and what that user puts in the place of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.plainuser import NOBODY, process_of_plain_user

from profd.daemon.errors import OutputUnwritable
from profd.daemon.windows.request import WindowFailed
from profd.daemon.windows.taking import ExchangeFolder, meeting

pytestmark = pytest.mark.requires("root", "setpriv")
FILE = "trace.json"


@pytest.fixture
def place() -> Iterator[ExchangeFolder]:
    """Meet a process of nobody's."""
    with process_of_plain_user() as pid, meeting(pid) as place:
        yield place


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Have a file of root's alone."""
    path = tmp_path / "secret"
    path.write_text("secret")
    path.chmod(0o600)
    return path


def test_what_the_process_leaves_is_read(place: ExchangeFolder) -> None:
    (place.there / FILE).write_text("{}")
    assert place.has(FILE)
    with place.opened(FILE) as opened:
        assert os.read(opened, 99) == b"{}"
    assert place.there.stat().st_uid == NOBODY


@pytest.mark.parametrize("plant", [os.symlink, os.link], ids=["link", "second name"])
def test_files_of_others_are_not_read(plant: Callable[[Path, Path], None], place: ExchangeFolder, secret: Path) -> None:
    plant(secret, place.there / FILE)
    with pytest.raises(WindowFailed, match=r"left no trace\.json"), place.opened(FILE):
        pass


def test_nobody_waits_for_a_pipe(place: ExchangeFolder) -> None:
    os.mkfifo(place.there / FILE)
    assert not place.has(FILE)
    with pytest.raises(WindowFailed, match=r"left no trace\.json"), place.opened(FILE):
        pass


def test_what_was_opened_is_what_is_read(place: ExchangeFolder, secret: Path) -> None:
    (place.there / FILE).write_text("{}")
    with place.opened(FILE) as opened:
        (place.there / FILE).unlink()
        (place.there / FILE).symlink_to(secret)
        assert os.read(opened, 99) == b"{}"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_never_written_through_a_link(place: ExchangeFolder, secret: Path, is_there: bool) -> None:
    wanted = secret if is_there else secret.with_name("new")
    (place.there / FILE).symlink_to(wanted)
    with pytest.raises(OutputUnwritable):
        place.files.write(place.there / FILE, b"text of ours")
    assert secret.read_text() == "secret"
    assert not secret.with_name("new").exists()


def test_what_is_written_is_the_users(place: ExchangeFolder) -> None:
    place.files.write(place.there / FILE, b"text")
    state = (place.there / FILE).stat()
    assert (state.st_uid, state.st_mode & 0o777, state.st_size) == (NOBODY, 0o600, 4)
