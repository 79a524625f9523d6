"""Where a live run is written, on a local disk and on one that passes for a network's.

And its openings.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from support.synthetic import main_process, run_started, write_run
from support.training_stacks import describe

from profd.daemon import paths
from profd.daemon.errors import OutputUnwritable
from profd.daemon.session.livefile import MOST_IN_MEMORY_BYTES, LiveFile
from profd.daemon.session.openings import LATELY_S, Openings
from profd.daemon.store.reader import RunReader
from profd.daemon.store.writer import RunWriter


@pytest.fixture
def wanted(tmp_path: Path) -> Path:
    (tmp_path / "wanted").mkdir()
    return tmp_path / "wanted" / "run.profd"


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every folder lie on a network, and return the local one."""
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "local"))
    monkeypatch.setattr(paths, "is_on_network", lambda path: True)
    return tmp_path / "local"


def has_recordings(path: Path) -> bool:
    with RunReader(path) as reader:
        return bool(reader.recordings())


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


def test_on_a_local_disk_it_is_written_where_it_is_wanted(wanted: Path) -> None:
    live_file = LiveFile(wanted)
    assert live_file.path == wanted
    write_run(live_file.path, seconds=1)
    live_file.settle()
    assert files_below(wanted.parent) == ["run.profd"]


def test_on_a_network_it_is_linked_while_live_and_moved_at_the_end(
    wanted: Path, network: Path
) -> None:
    live_file = LiveFile(wanted)
    assert live_file.path.is_relative_to(network)
    write_run(live_file.path, seconds=1)
    assert wanted.is_symlink()
    with RunReader(wanted) as reader:
        assert reader.info.state == "ended"
    live_file.settle()
    assert not wanted.is_symlink()
    assert has_recordings(wanted)
    assert files_below(network) == []
    assert files_below(wanted.parent) == ["run.profd"]


@pytest.mark.parametrize(
    ("mode", "is_shared"), [(0o700, False), (0o755, False), (0o777, True), (0o1777, True)]
)
def test_in_a_folder_that_others_may_write_no_name_of_it_is_opened(
    wanted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_shared: bool
) -> None:
    """SQLite opens a log by its name: who can put a link there would choose what is written."""
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "local"))
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    for ending in ("-wal", "-shm", "-journal") if is_shared else ():
        wanted.with_name(wanted.name + ending).symlink_to(victim)
    wanted.parent.chmod(mode)
    live_file = LiveFile(wanted)
    assert live_file.path.is_relative_to(tmp_path / "local") is is_shared
    write_run(live_file.path, seconds=1)
    live_file.settle()
    assert victim.read_text() == "theirs"
    assert (wanted.is_symlink(), wanted.stat().st_mode & 0o777) == (False, 0o600)
    assert files_below(tmp_path / "local") == []


@pytest.mark.usefixtures("network")
def test_two_live_runs_of_one_name_have_files_of_their_own(wanted: Path) -> None:
    (wanted.parent / "other").mkdir()
    assert LiveFile(wanted).path != LiveFile(wanted.parent / "other" / wanted.name).path


def test_what_a_reader_keeps_in_the_log_is_moved_too(wanted: Path, network: Path) -> None:
    live_file = LiveFile(wanted)
    writer = RunWriter(live_file.path, run_started(), describe)
    writer._tables._connection.execute("PRAGMA busy_timeout = 0")
    with RunReader(wanted) as reader, reader.one_moment():
        writer.put(main_process())
        writer.close()
        assert Path(f"{live_file.path}-wal").stat().st_size
        live_file.settle()
    with RunReader(wanted) as reader:
        assert len(reader.processes) == 1
    assert files_below(network) == []
    assert files_below(wanted.parent) == ["run.profd"]


@pytest.mark.parametrize("fails", ["shutil.copyfileobj", "os.replace"])
def test_what_cannot_be_moved_stays_linked_and_is_moved_later(
    wanted: Path, network: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fill_up(
        source: str | BinaryIO, destination: str | BinaryIO, *_: int, **folders: int
    ) -> None:
        if not isinstance(destination, str):
            destination.write(b"half")
        raise OSError(28, "No space left on device")

    live_file = LiveFile(wanted)
    write_run(live_file.path, seconds=1)
    with monkeypatch.context() as failing:
        failing.setattr(fails, fill_up)
        with pytest.raises(OutputUnwritable, match="No space left"):
            live_file.settle()
    assert files_below(wanted.parent) == ["run.profd"]
    assert has_recordings(wanted)
    live_file.settle()
    assert has_recordings(wanted)
    assert files_below(network) == []


def test_a_disk_goes_before_memory_in_which_the_run_is_bounded_and_that_is_said(
    wanted: Path, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(paths, "is_on_network", lambda path: path == wanted.parent)
    monkeypatch.setattr(paths, "is_in_memory", lambda path: path != tmp_path / "scratch")
    in_memory = LiveFile(wanted)
    assert in_memory.path.is_relative_to(network)
    assert in_memory.most_bytes == MOST_IN_MEMORY_BYTES
    assert "set TMPDIR" in in_memory.warning
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "scratch"))
    on_disk = LiveFile(wanted.with_name("other.profd"))
    assert on_disk.path.is_relative_to(tmp_path / "scratch")
    assert (on_disk.most_bytes, on_disk.warning) == (None, "")


def test_a_folder_on_a_network_is_no_local_disk(
    wanted: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where TMPDIR is on one, too, the run goes to the next folder."""
    monkeypatch.setattr(paths, "is_on_network", lambda path: path in (wanted.parent, network))
    monkeypatch.setattr(paths, "is_in_memory", lambda path: False)
    monkeypatch.setenv("SLURM_TMPDIR", str(wanted.parent.parent))
    assert LiveFile(wanted).path.parent == wanted.parent.parent / f"profd-{os.getuid()}"


@pytest.mark.usefixtures("network")
def test_a_place_that_is_taken_is_an_error_of_the_output(wanted: Path) -> None:
    wanted.touch()
    with pytest.raises(OutputUnwritable, match="File exists"):
        LiveFile(wanted)


@pytest.mark.usefixtures("network")
def test_it_is_moved_privately_and_never_through_a_link(
    wanted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = wanted.with_name("victim")
    victim.write_text("theirs")
    # The name that it once had on the way.
    wanted.with_name(f".{wanted.name}.moving").symlink_to(victim)
    live_file = LiveFile(wanted)
    write_run(live_file.path, seconds=1)
    modes: list[int] = []
    copy = shutil.copyfileobj

    def look(source: BinaryIO, destination: BinaryIO, length: int) -> None:
        modes.append(os.fstat(destination.fileno()).st_mode & 0o777)
        copy(source, destination, length)

    monkeypatch.setattr(shutil, "copyfileobj", look)
    live_file.settle()
    assert modes == [0o600]
    assert wanted.stat().st_mode & 0o777 == 0o600
    assert victim.read_text() == "theirs"


async def test_an_opening_is_noticed_and_counts_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = tmp_path / "a.profd", asyncio.Event()
    path.write_bytes(b"run")
    watched = Openings(path, opened.set)
    assert not watched.were_lately()
    path.read_bytes()
    await opened.wait()
    assert watched.were_lately()
    now_s = time.monotonic()
    monkeypatch.setattr("profd.daemon.session.openings.time.monotonic", lambda: now_s + LATELY_S)
    assert not watched.were_lately()
    watched.close()


async def test_where_nobody_can_tell_it_may_have_been_opened(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    unknown = Openings(tmp_path / "none.profd", lambda: None)
    assert unknown.were_lately()
    unknown.close()
    assert set(os.listdir("/proc/self/fd")) == before
