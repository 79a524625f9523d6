"""Files that take the place of others: whole or not at all, and private from their first byte on."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from profd.daemon.paths import replacing


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "run.profd"


def test_it_is_private_while_it_is_written_and_whole_in_its_place(target: Path) -> None:
    target.write_text("before")
    with replacing(target) as file:
        (beside,) = set(target.parent.iterdir()) - {target}
        file.write(b"after")
        file.flush()
        assert beside.stat().st_mode & 0o777 == 0o600
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there_and_nothing_else(target: Path, error: BaseException) -> None:
    target.write_text("before")

    def break_off() -> None:
        with replacing(target) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        break_off()
    assert target.read_text() == "before"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_that_was_guessed_is_not_followed(
    target: Path, tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda length: "guessed")
    (tmp_path / "victim").write_text("victim's")
    (tmp_path / ".profd-guessed").symlink_to(tmp_path / ("victim" if is_there else "new"))
    with pytest.raises(FileExistsError), replacing(target):
        pass
    assert (tmp_path / "victim").read_text() == "victim's"
    assert not (tmp_path / "new").exists()


def test_two_names_are_never_the_same(target: Path) -> None:
    with replacing(target), replacing(target):
        assert len(list(target.parent.iterdir())) == 2


def test_a_link_in_its_place_is_replaced(target: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    target.symlink_to(tmp_path / "other")
    with replacing(target, mode=0o640) as file:
        file.write(b"after")
    assert not target.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640 & ~_umask()
    assert (tmp_path / "other").read_text() == "other"


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
