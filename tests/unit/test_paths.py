"""Where files lie, what a run is called, and which one a word means."""

from __future__ import annotations

import errno
import os
import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon import paths
from profd.daemon.errors import NoSuchRun, OutputUnwritable
from profd.daemon.paths import replacing, write_whole

as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


def make_run(run_id: str) -> Path:
    folder = paths.make_private(paths.runs_folder())
    path = folder / f"{run_id}.profd"
    path.touch()
    return path


@given(st.text(max_size=60))
def test_any_name_makes_an_id_that_is_a_file_name_and_gives_the_name_back(name: str) -> None:
    run_id = paths.new_run_id(name, datetime(2026, 11, 20, 12, 0, 5))
    assert re.fullmatch(r"20261120-120005-[^\s/\x00-\x2d:-@\[-^`{-\x7f]+-[0-9a-f]{4}", run_id)
    assert run_id.isprintable()
    assert len(os.fsencode(run_id)) <= 16 + 24 + 5
    assert paths.run_name(Path(f"/runs/{run_id}.profd")) == paths.clean_name(name)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        *(
            ("train.py", "train.py"),
            ("a b/c", "a_b_c"),
            ("../..", "run"),
            ("", "run"),
            ("-x", "x"),
            ("\udcff?", "run"),
        ),
        *(
            ("é", "é"),
            ("e\u0301", "é"),
            ("训练", "训练"),
            ("обучение", "обучение"),
            ("हिन्दी", "हिन्दी"),
            ("a\u3000b", "a_b"),
        ),
        *(("训" * 20, "训" * 8), ("a\u202eb", "a_b"), ("🚀", "🚀")),
    ],
)
def test_a_name_is_reduced_to_what_a_file_may_be_called(name: str, clean: str) -> None:
    assert paths.clean_name(name) == clean
    assert paths.clean_name(clean) == clean
    assert paths.run_name(Path("mine.profd")) == "mine"  # which is no id
    assert len({paths.new_run_id(name, datetime(2026, 11, 20)) for _ in range(20)}) > 1


def test_runs_lie_in_one_home_or_in_the_users_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROFD_HOME", "mine")
    run_file = paths.new_run_file("id")
    assert run_file == tmp_path / "mine" / "runs" / "id.profd"
    assert run_file.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("PROFD_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert paths.runs_folder() == tmp_path / "state" / "profd" / "runs"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")  # so it counts for nothing
    assert paths.runs_folder() == tmp_path / ".local" / "state" / "profd" / "runs"
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert paths.own_file("phases.toml") == tmp_path / ".config" / "profd" / "phases.toml"


def test_control_sockets_lie_in_a_private_folder_of_the_home_that_leaves_room_for_their_names(
    profd_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (profd_home / "run").mkdir(mode=0o777)
    assert paths.runtime_folder() == profd_home / "run"
    assert paths.runtime_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("PROFD_HOME", str(tmp_path / ("x" * 60)))
    socket = paths.runtime_folder() / f"{paths.new_run_id('x' * 100)}.sock"
    assert len(os.fsencode(socket)) <= 107


@pytest.mark.parametrize("login", ["ours", None, "/nowhere/run/user/1000", "/dev/null"])
def test_without_a_home_sockets_lie_in_the_folder_of_the_login_where_that_is_ours(
    monkeypatch: pytest.MonkeyPatch, profd_home: Path, login: str | None
) -> None:
    monkeypatch.delenv("PROFD_HOME")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if login is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(profd_home) if login == "ours" else login)
    if login == "ours":
        assert paths.runtime_folder() == profd_home / "profd"
    else:
        monkeypatch.setattr(paths, "make_private", lambda folder: folder)
        monkeypatch.setattr(os, "getuid", lambda: 4321)
        assert paths.runtime_folder() == Path("/tmp/profd-4321")


def test_a_private_folder_is_made_with_its_parents_and_taken_behind_a_link_of_ours(
    tmp_path: Path,
) -> None:
    assert paths.make_private(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to("scratch")
    for mode in (0o755, 0o750):
        (tmp_path / "scratch").chmod(mode)
        assert paths.make_private(tmp_path / "runs") == tmp_path / "runs"
        assert (tmp_path / "scratch").stat().st_mode & 0o777 == 0o700


def test_a_private_folder_of_another_user_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(OutputUnwritable, match="not yours"):
        paths.make_private(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links for others")
@pytest.mark.parametrize("squatted", ["link", "folder"])
def test_a_private_folder_that_another_user_squats_is_refused(
    tmp_path: Path, squatted: str
) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("folder")
    os.chown(tmp_path / squatted, 4321, 4321, follow_symlinks=False)
    with pytest.raises(OutputUnwritable, match="not yours"):
        paths.make_private(tmp_path / "link")
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("name", "meant"),
    [(name, "cannot create") for name in ("file", "file/below", "dangling")]
    + [("open", "Operation not permitted")],
)
def test_a_private_folder_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "open").mkdir(mode=0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(OutputUnwritable, match=meant) as failure:
        paths.make_private(tmp_path / name)
    assert "PROFD_HOME" in failure.value.remedy


@pytest.mark.parametrize(
    ("output", "message"),
    [
        *(
            ("there.profd", "exists already"),
            (".", "exists already"),
            ("none/mine.profd", "does not exist"),
        ),
        *(("there.profd/mine.profd", "does not exist"), ("caf\udce9.profd", "is not UTF-8")),
        ("mine.profd", "not writable"),
    ],
)
def test_a_run_is_where_it_was_asked_for_or_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.new_run_file("id", Path("mine.profd")) == tmp_path / "mine.profd"
    Path("there.profd").touch()
    if output == "mine.profd":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputUnwritable, match=message) as failure:
        paths.new_run_file("id", Path(output))
    assert failure.value.remedy


@pytest.mark.parametrize("name", ["My\u00a0Drive", "a\u3000b", "a\u00adb", "a\ue000b", "a\nb"])
def test_a_run_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    run_file = tmp_path / name / "mine.profd"
    assert paths.new_run_file("id", run_file) == run_file


def test_a_run_is_found_by_the_name_of_its_script_in_any_language() -> None:
    for name in ("训练", "a b 训练 一 二 三 四 五", "🚀"):
        run = make_run(paths.new_run_id(name))
        assert {
            paths.find_run(word)
            for word in (name, f"{name}.py", paths.clean_name(name)[:3], run.stem)
        } == {run}
    with pytest.raises(NoSuchRun, match="no run is called"):
        paths.find_run("???")


def test_latest_is_the_one_begun_last() -> None:
    with pytest.raises(NoSuchRun, match="no runs yet"):
        paths.find_run("latest")
    made = [make_run(f"202611{day}-120000-cifar-aaaa") for day in (20, 22, 21)]
    assert paths.find_run("latest") == made[1]
    assert paths.list_runs() == [made[1], made[2], made[0]]


@pytest.mark.parametrize(
    "word", ["20261120-120000-cifar-aaaa", "20261120", "cifar", "cif", "20261120-12"]
)
def test_id_and_unique_prefix_of_either_mean_a_run(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = make_run("20261120-120000-cifar-aaaa")
    make_run("20261119-120000-net-bbbb")
    monkeypatch.chdir(tmp_path)
    Path(word).mkdir()  # a folder in the way does not hide it
    assert paths.find_run(word) == wanted


@pytest.mark.parametrize(("runs", "named"), [(2, 0), (6, 4)])
def test_a_word_that_could_be_several_runs_names_the_last_of_many(runs: int, named: int) -> None:
    for number in range(runs):
        make_run(f"20261120-12000{number}-cifar-aaaa")
    with pytest.raises(NoSuchRun, match=f"any of {runs} runs") as failure:
        paths.find_run("cifar")
    assert ("20261120-120005-cifar-aaaa" in failure.value.what) == (runs == 6)
    assert failure.value.what.count("cifar-aaaa") >= named


def test_an_exact_id_wins_over_longer_ones_and_a_path_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, _ = make_run("cifar"), make_run("cifar2")
    assert paths.find_run("cifar") == exact
    monkeypatch.chdir(tmp_path)
    for name in ("mine.profd", "cifar"):
        Path(name).touch()
        assert paths.find_run(name) == Path(name)
        assert paths.find_run(f"./{name}") == Path(f"./{name}")


@pytest.mark.parametrize(
    "word",
    [
        "none",
        "",
        "none.profd",
        "./none",
        "/none/none",
        "x" * 300,
        "/" + "x" * 5000,
        "nul\0",
        "nul\0.profd",
    ],
)
def test_a_word_for_nothing_says_so(word: str) -> None:
    make_run("20261120-120000-cifar-aaaa")
    with pytest.raises(NoSuchRun) as failure:
        paths.find_run(word)
    assert "profd ls" in failure.value.remedy


@as_user
def test_a_path_that_is_not_ours_to_enter_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o000)
    with pytest.raises(NoSuchRun):
        paths.find_run(str(tmp_path / "locked" / "run.profd"))
    with pytest.raises(OutputUnwritable):
        paths.new_run_file("id", tmp_path / "locked" / "below" / "mine.profd")


def test_only_files_that_are_there_are_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.list_runs() == []
    kept = make_run("20261120-120000-a-aaaa")
    vanishing = make_run("20261120-120001-b-bbbb")
    (kept.parent / "folder.profd").mkdir()
    (kept.parent / "dangling.profd").symlink_to("nowhere")
    (kept.parent / "run.profd-wal").touch()
    real = Path.glob

    def glob_and_lose(folder: Path, pattern: str) -> list[Path]:
        found = list(real(folder, pattern))
        vanishing.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "glob", glob_and_lose)
    assert paths.list_runs() == [kept]
    for home in ("/dev/null", "/dev/null/below"):
        monkeypatch.setenv("PROFD_HOME", home)
        assert paths.list_runs() == []


MOUNTS = """
/dev/vda1 / ext4 rw 0 0
proc /proc proc rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/ada/local\\040disk ext4 rw 0 0
overlay /mnt overlay rw 0 0
fs@o2ib:/scratch /mnt lustre rw 0 0
gateway /mnt/s3 fuse.s3fs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "is_on_network"),
    [
        *(("/var/runs", False), ("/home/ada/runs", True), ("/home", True), ("/homes/ada", False)),
        *(("/home/ada/local disk/runs", False), ("/home/ada/local", True), ("/mnt/runs", True)),
        *(("/mnt/s3/runs", True), ("/home/../var", False)),
    ],
)
def test_the_innermost_and_last_mount_says_if_a_path_is_on_a_network(
    path: str, is_on_network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_mounts(monkeypatch, MOUNTS)
    assert paths.is_on_network(Path(path)) == is_on_network


def set_mounts(monkeypatch: pytest.MonkeyPatch, mounts: str) -> None:
    texts = {"/proc/self/mounts": mounts}
    monkeypatch.setattr("profd.daemon.paths.processes.read_text", texts.__getitem__)


def test_paths_in_memory_and_on_a_network_behind_a_link_are_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not paths.is_on_network(Path("/proc"))  # by the mounts of this machine
    mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/sdb /tmp/scratch xfs rw 0 0\n"
    set_mounts(monkeypatch, mounts)
    found = [
        paths.is_in_memory(Path(path)) for path in ("/var/tmp", "/tmp/runs", "/tmp/scratch/runs")
    ]
    assert found == [False, True, False]
    (tmp_path / "runs").symlink_to("/home/ada/runs")
    set_mounts(monkeypatch, MOUNTS)
    assert paths.is_on_network(tmp_path / "runs")


def test_file_is_replaced_a_link_is_followed_and_stays_and_a_pipe_is_written_to(
    tmp_path: Path,
) -> None:
    target, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to(target)
    target.write_text("old")
    write_whole(target, b"new")
    assert target.read_text() == "new"
    write_whole(link, b"newer")
    assert link.is_symlink()
    assert target.read_text() == "newer"
    with pytest.raises(OutputUnwritable, match="Is a directory"):
        write_whole(tmp_path, b"new")
    read_fd, write_fd = os.pipe()
    write_whole(Path(f"/dev/fd/{write_fd}"), b"new")
    assert os.read(read_fd, 10) == b"new"
    os.close(read_fd)
    os.close(write_fd)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "run.profd"


def test_it_is_private_while_it_is_written_and_whole_in_its_place(target: Path) -> None:
    target.write_text("before")
    with replacing(target) as file:
        (beside,) = set(target.parent.iterdir()) - {target}
        with replacing(target.with_name("other")):
            assert len(list(target.parent.iterdir())) == 3  # no two names are the same
        target.with_name("other").unlink()
        file.write(b"after")
        file.flush()
        assert beside.stat().st_mode & 0o777 == 0o600
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_it_takes_its_place_once_it_is_on_the_disk(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure the old file is there, or all of the new one."""
    steps, replace, sync = list[tuple[str, str]](), os.replace, os.fsync

    def noted_sync(descriptor: int) -> None:
        steps.append(("sync", Path(f"/proc/self/fd/{descriptor}").resolve().name))
        sync(descriptor)

    def noted_replace(source: str, named: str, **folders: int) -> None:
        steps.append(("replace", named))
        replace(source, named, **folders)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    with replacing(target) as file:
        (beside,) = target.parent.iterdir()
        file.write(b"after")
    assert steps == [("sync", beside.name), ("replace", target.name), ("sync", target.parent.name)]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failure_leaves_what_was_there(
    target: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: object, **__: object) -> None:
        raise error

    target.write_text("before")
    with pytest.raises(type(error)), replacing(target) as file:
        break_off(file.write(b"half"))
    monkeypatch.setattr(os, "replace", break_off)
    with pytest.raises((OutputUnwritable, KeyboardInterrupt)):
        write_whole(target, b"new")
    assert [(path.name, path.read_text()) for path in target.parent.iterdir()] == [
        (target.name, "before")
    ]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_that_was_guessed_is_not_followed(
    target: Path, tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "victim").write_text("victim's")
    (tmp_path / f".profd-{bytes(8).hex()}").symlink_to(tmp_path / ("victim" if is_there else "new"))
    with pytest.raises(FileExistsError), replacing(target):
        pass
    assert (tmp_path / "victim").read_text() == "victim's"
    assert not (tmp_path / "new").exists()


def test_a_link_in_its_place_is_replaced(target: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    target.symlink_to(tmp_path / "other")
    os.umask(umask := os.umask(0))
    with replacing(target, mode=0o640) as file:
        file.write(b"after")
    assert not target.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640 & ~umask
    assert (tmp_path / "other").read_text() == "other"


def test_a_folder_is_shared_if_another_user_may_put_a_name_or_a_folder_there(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for modes, is_shared in {
        (0o755, 0o755): False,
        (0o755, 0o777): True,
        (0o755, 0o1777): True,
        (0o777, 0o755): True,
        (0o1777, 0o755): False,
    }.items():
        inner.parent.chmod(modes[0])
        inner.chmod(modes[1])
        assert paths.may_others_write(inner) is is_shared, modes


@pytest.mark.requires("root")
def test_a_folder_of_another_user_is_shared_for_root_and_a_group_unless_it_is_ones_own(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o775)
    assert not paths.may_others_write(folder)
    os.chown(folder, 0, 65534)
    assert paths.may_others_write(folder)
    folder.chmod(0o755)
    assert not paths.may_others_write(folder)
    os.chown(folder, 65534, 0)
    assert paths.may_others_write(folder)


def test_who_has_no_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as any user."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("PROFD_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(OutputUnwritable, match="you have no home: HOME is not set"):
        paths.runs_folder()


def test_a_home_below_a_removed_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("PROFD_HOME", "mine")
    with pytest.raises(OutputUnwritable, match="below the current folder, which was removed"):
        paths.runs_folder()
