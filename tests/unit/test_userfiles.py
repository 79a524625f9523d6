"""Files as a process's user sees them: with its rights and its root, whatever it puts in their
place; and in time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.plainuser import NOBODY, give_to_plain_user, process_of_plain_user
from support.present import there
from support.waiting import DEADLINE_S, until

from profd.daemon import asuser, processes
from profd.daemon.errors import OutputUnwritable
from profd.daemon.processes import Owner
from profd.daemon.userfiles import Unanswered, UserFiles, files_of, sees_our_files

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_HEAD = struct.Struct("<IIQ")
_REQUEST = struct.Struct("<IIQQ")
_VERSION = struct.pack("<II", 7, 31) + bytes(56)
_REQUEST_BYTES = 1 << 17


class DeadMount:
    """What was mounted; ``asked`` is set once someone waits for an answer that does not come."""

    def __init__(self, folder: Path, device: int) -> None:
        self.folder = folder
        self.asked = threading.Event()
        self._device = device

    def begin(self) -> None:
        """Say hello to the kernel; what is asked after that goes unanswered."""
        _, _, unique, _ = _REQUEST.unpack_from(os.read(self._device, _REQUEST_BYTES))
        os.write(self._device, _HEAD.pack(_HEAD.size + len(_VERSION), 0, unique) + _VERSION)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._device, _REQUEST_BYTES)
            self.asked.set()


@contextlib.contextmanager
def dead_mount(folder: Path) -> Iterator[DeadMount]:
    """Mount a file system that never answers on a folder; skips the test where nobody may."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no file system can be made here: {error}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if _LIBC.mount(b"dead", os.fsencode(folder), b"fuse", 0, options.encode()):
        os.close(device)
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    mount = DeadMount(folder, device)
    try:
        mount.begin()
        yield mount
    finally:
        _LIBC.umount2(os.fsencode(folder), _DETACH)
        os.close(device)  # readers that still wait get an error: the file system is gone


NOBODYS = Owner(NOBODY, NOBODY, ())
TEXT = b"x = 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "train.py").write_bytes(TEXT)
    return tmp_path


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def test_a_file_is_read_and_seen_and_the_helper_ends_with_its_owner(root: Path) -> None:
    files = UserFiles(root=root)
    assert (
        files.read("/home/train.py")
        == files.read("//home/./train.py")
        == files.read("/../home/train.py")
        == TEXT
    )
    assert files.is_file("/home/train.py")
    assert files.is_file("/home/train.py")
    helper = there(files._helper)
    del files
    until(lambda: helper.poll() is not None, "the child ends")


@pytest.mark.parametrize(
    "path", ["/home", "/none.py", "", "/", "/home/train.py/x", "/nul\0", "/" + "x/" * 5000]
)
def test_what_is_no_file_gives_nothing(root: Path, path: str) -> None:
    files = UserFiles(root=root)
    assert (files.read(path), files.is_file(path)) == (b"", False)
    assert files.read("/home/train.py") == TEXT


@pytest.mark.parametrize(
    "make", [os.mkfifo, link("/dev/zero"), link("link.py"), link("/proc/self/fd/0")]
)
def test_what_would_keep_a_reader_is_not_opened(root: Path, make: Callable[[Path], None]) -> None:
    make(root / "link.py")
    files = UserFiles(root=root)
    assert (files.read("/link.py"), files.is_file("/link.py"), files.open("/link.py")) == (
        b"",
        False,
        None,
    )


def test_a_file_is_read_whole_or_not_at_all(root: Path) -> None:
    large = root / "home" / "large.py"
    for length, expected in ((asuser.MOST_BYTES, asuser.MOST_BYTES), (asuser.MOST_BYTES + 1, 0)):
        large.touch()
        os.truncate(large, length)
        assert len(UserFiles(root=root).read("/home/large.py")) == expected


def test_a_plain_file_is_opened_and_never_what_a_link_in_its_place_leads_to(root: Path) -> None:
    """In its place somebody may have put a link to a file that is theirs to name, but not theirs to
    read.
    """
    files = UserFiles(root=root)
    opened = there(files.open("/home/train.py"))
    assert os.read(opened, 99) == TEXT
    os.close(opened)
    for name, target in (("inner", "train.py"), ("absolute", str(root / "home" / "train.py"))):
        (root / "home" / name).symlink_to(target)
        assert files.open(f"/home/{name}") is None


def test_a_file_is_made_for_its_owner_alone_and_only_where_there_is_nothing(root: Path) -> None:
    files = UserFiles(root=root)
    files.write("/home/new", b"text")
    assert (
        (root / "home" / "new").read_bytes(),
        (root / "home" / "new").stat().st_mode & 0o777,
    ) == (b"text", 0o600)
    (root / "home" / "link").symlink_to("other")
    (root / "home" / "second").hardlink_to(root / "home" / "train.py")
    for name in ("train.py", "second", "link"):
        with pytest.raises(OutputUnwritable):
            files.write(f"/home/{name}", b"ours")
    assert ((root / "home" / "train.py").read_bytes(), (root / "home" / "other").exists()) == (
        TEXT,
        False,
    )


def test_links_lead_where_they_lead_for_the_process(root: Path) -> None:
    """In a container an absolute link names another file than on the host."""
    outside = root.parent / "outside.py"
    outside.write_text("secret")
    (root / "absolute.py").symlink_to("/home/train.py")
    (root / "upwards.py").symlink_to("../../../../home/train.py")
    (root / "folder").symlink_to("/home/../home")
    (root / "leak.py").symlink_to(f"../{outside.name}")
    (root / "leak2.py").symlink_to(outside)
    files = UserFiles(root=root)
    assert [
        files.read(f"/{name}") for name in ("absolute.py", "upwards.py", "folder/train.py")
    ] == [TEXT] * 3
    assert [files.read(f"/{name}") for name in ("leak.py", "leak2.py", f"../{outside.name}")] == [
        b""
    ] * 3


@pytest.mark.requires("root", "setpriv")
def test_only_what_the_user_may_read_is_read(root: Path) -> None:
    (root / "secret").mkdir(mode=0o700)
    (root / "secret" / "readable.py").write_bytes(TEXT)
    (root / "shadow").write_text("root:x:")
    (root / "shadow").chmod(0o600)
    (root / "own").write_bytes(TEXT)
    (root / "own").chmod(0o600)
    give_to_plain_user(root / "own")
    root.chmod(0o755)
    files = UserFiles(NOBODYS, root)
    assert [files.read(f"/{name}") for name in ("shadow", "secret/readable.py", "own")] == [
        b"",
        b"",
        TEXT,
    ]
    assert not files.is_file("/secret/readable.py")
    os.chown(root / "shadow", 0, 4242)
    (root / "shadow").chmod(0o640)
    assert files.read("/shadow") == b""
    assert (
        UserFiles(Owner(NOBODY, NOBODY, (4242,)), root).read("/shadow") == b"root:x:"
    )  # groups count


@pytest.mark.requires("root", "setpriv")
def test_files_of_a_process_are_its_users() -> None:
    with process_of_plain_user() as pid:
        files = files_of(pid)
        assert files.read("/etc/shadow") == b""
        assert files.read("/etc/passwd") == Path("/etc/passwd").read_bytes()
        assert files_of(pid) is files
        assert files_of(os.getpid()) is not files


@pytest.mark.requires("root", "setpriv")
def test_a_folder_is_the_users_alone_and_none_where_it_may_not_write(root: Path) -> None:
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    root.chmod(0o755)
    files = UserFiles(NOBODYS, root)
    made = there(files.make_folder("/tmp"))
    state = (root / "tmp" / made).stat()
    assert (state.st_uid, state.st_mode & 0o777) == (NOBODY, 0o700)
    files.write(f"/tmp/{made}/a", b"text")
    assert ((root / "tmp" / made / "a").stat().st_uid, files.read(f"/tmp/{made}/a")) == (
        NOBODY,
        b"text",
    )
    with pytest.raises(OutputUnwritable):
        files.write(f"/tmp/{made}/a", b"other")
    files.remove(f"/tmp/{made}")
    assert not (root / "tmp" / made).exists()
    assert files.make_folder("/home") is None
    (root / "moved").symlink_to("/home")
    assert files.make_folder("/moved") is None


def text(files: UserFiles) -> bytes | None:
    """Return the text of the script; None where nobody answers."""
    try:
        return files.read("/home/train.py")
    except Unanswered:
        return None


@pytest.mark.requires("root")
def test_a_file_system_that_never_answers_is_waited_for_once(root: Path) -> None:
    (root / "dead").mkdir()
    with dead_mount(root / "dead") as mount:
        files = UserFiles(root=root)
        files.deadline_s, files.pause_s = 0.5, 0.0
        assert files.read("/home/train.py") == TEXT
        helper = there(files._helper)
        with pytest.raises(Unanswered):
            files.read("/dead/train.py")
        assert mount.asked.is_set()
        # Nothing can end a process that waits in there; until it is gone there is no other one.
        assert [text(files), files.is_file("/home/train.py")] == [None, False]
        assert files._helper is helper
    until(lambda: text(files) == TEXT, "files are read again")
    assert files._helper is not helper


def test_a_child_that_is_not_asked_for_long_ends_and_one_answers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asuser, "IDLE_S", 0.01)
    ours, theirs = socket.socketpair()
    with ours, pytest.raises(TimeoutError):
        asuser.serve(theirs, -1)
    files = UserFiles(root=root)
    assert text(files) == TEXT
    first = there(files._helper)
    first.terminate()
    first.wait(DEADLINE_S)
    assert text(files) == TEXT
    assert files._helper is not first


def test_after_a_deadline_nothing_is_read_for_a_while(root: Path) -> None:
    files = UserFiles(root=root)
    files.deadline_s = 60.0
    assert files.is_file("/home/train.py")
    assert files._helper is not None
    files._helper.send_signal(signal.SIGSTOP)
    files.deadline_s = 0.01
    assert text(files) is None
    files.deadline_s = 60.0
    assert text(files) is None
    files._paused_until_s = 0.0
    until(lambda: text(files) == TEXT, "files are read again")


def test_files_of_an_ended_process_are_read_as_nobody() -> None:
    gone = 2**22 + 1
    assert files_of(gone).read("/etc/passwd") == Path("/etc/passwd").read_bytes()
    assert files_of(gone).read("/etc/shadow") == b""
    with pytest.raises(OSError, match="No such file"):
        sees_our_files(gone)


def test_files_of_a_process_in_a_container_are_below_its_root(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    proc = root / "proc" / "4242"
    (proc / "ns").mkdir(parents=True)
    (proc / "ns" / "mnt").symlink_to("mnt:[1]")
    (proc / "status").write_text(
        "Uid:\t{0}\t{0}\t{0}\t{0}\nGid:\t0\t0\t0\t0\nGroups:\t\n".format(os.geteuid())
    )
    (proc / "root").symlink_to(root)
    (root / "proc" / "self").symlink_to("/proc/self")
    monkeypatch.setattr(processes, "PROC", root / "proc")
    assert files_of(4242).read("/home/train.py") == TEXT
