"""The paths of this user's runs, reports and sockets, and how files are written there."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from profd.daemon import processes
from profd.daemon.errors import NoSuchRun, OutputUnwritable

SUFFIX = ".profd"
HANG_SUFFIX = ".hang.md"
"""Of the text of a run's last hang, which lies beside its file."""
_NAMELESS = "run"
"""The name of a run if nothing in its own name is allowed in a file name."""
LATEST = "latest"
"""The word for the newest run."""
_ID = re.compile(r"(?P<time>\d{8}-\d{6})-(?P<name>.+)-[0-9a-f]{4}")
# Write-ahead logging needs memory that its users share, which these do not provide across machines.
_OWN_FOLDER = "set PROFD_HOME to a folder of your own"
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "afs",
    "fuse",
)


def runs_folder() -> Path:
    """Return the folder of this user's runs.

    It is ``$PROFD_HOME/runs``, or else lies in the folder for user state.
    """
    return (home() or _of_user("XDG_STATE_HOME", ".local/state")) / "runs"


def own_file(name: str) -> Path:
    """Return the path of a table or configuration of this user, whether or not it exists."""
    return (home() or _of_user("XDG_CONFIG_HOME", ".config")) / name


def _of_user(variable: str, usual: str) -> Path:
    """Return profd's folder by XDG's rules.

    Platformdirs would take two megabytes of each process.
    """
    folder = Path(os.environ.get(variable, ""))
    try:
        return (folder if folder.is_absolute() else Path.home() / usual) / "profd"
    except RuntimeError:  # as in a container that runs as an arbitrary user
        what = f"you have no home: HOME is not set, and user {os.getuid()} is not in /etc/passwd"
        raise OutputUnwritable(what, _OWN_FOLDER) from None


def home() -> Path | None:
    """Return ``$PROFD_HOME`` as an absolute path.

    A session works in another folder than its starter.
    """
    folder = os.environ.get("PROFD_HOME")
    try:
        return Path(folder).absolute() if folder else None
    except FileNotFoundError:
        what = f"PROFD_HOME is {folder}, below the current folder, which was removed"
        raise OutputUnwritable(what, _OWN_FOLDER) from None


def runtime_folder() -> Path:
    """Return the private folder of this user's control sockets; raises OutputUnwritable."""
    own = home()
    login = Path(os.environ["XDG_RUNTIME_DIR"]) if os.environ.get("XDG_RUNTIME_DIR") else None
    try:  # `su` and `sudo` may pass on the variable of another user
        login = login if login and login.stat().st_uid == os.getuid() else None
    except OSError:
        login = None
    folder = own / "run" if own else login / "profd" if login else None
    # The path of a Unix socket holds 107 bytes, and a run's id takes about 50 of them.
    if folder is None or len(os.fsencode(folder)) > 50:
        folder = Path(f"/tmp/profd-{os.getuid()}")
    return make_private(folder)


def make_private(folder: Path) -> Path:
    """Create a folder that only its owner may enter, and return it; raises OutputUnwritable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = folder.lstat().st_uid == folder.stat().st_uid == os.getuid()
        if is_ours and folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        remedy = "set PROFD_HOME to a folder that you can write to"
        raise OutputUnwritable.of_system(f"cannot create {folder}", error, remedy) from error
    if not is_ours:
        raise OutputUnwritable(f"{folder} is not yours", _OWN_FOLDER)
    return folder


def new_run_id(name: str, now: datetime | None = None) -> str:
    """Return an id for a run: ``YYYYMMDD-HHMMSS-<name>-<4 hex>``, safe as a file name."""
    return f"{now or datetime.now():%Y%m%d-%H%M%S}-{clean_name(name)}-{os.urandom(2).hex()}"


def clean_name(name: str) -> str:
    """Return ``name`` reduced to letters of all languages, digits, ``_`` and ``.``.

    At most 24 bytes are left, because the path of a socket has to hold it.
    """
    # A file name cannot hold what the file system's encoding lacks.
    encoded = unicodedata.normalize("NFC", name).encode(sys.getfilesystemencoding(), "ignore")
    known = encoded.decode(sys.getfilesystemencoding())
    kept = (
        # Beyond ASCII, vowel signs and emojis are parts of words, too.
        one if one in "_." or one.isalnum() or (not one.isascii() and one.isprintable()) else " "
        for one in known
    )
    clean = re.sub(r"\s+", "_", "".join(kept)).strip("._").encode(sys.getfilesystemencoding())[:24]
    return clean.decode(sys.getfilesystemencoding(), "ignore") or _NAMELESS


def new_run_file(run_id: str, output: Path | None = None) -> Path:
    """Return the path of a new run, and make its folder.

    Raises OutputUnwritable if the path cannot be written.
    """
    if output is None:
        folder, path = runs_folder(), runs_folder() / f"{run_id}{SUFFIX}"
        make_private(folder)
    else:
        folder, path = output.absolute().parent, output.absolute()
        if os.path.exists(path):  # noqa: PTH110  Path raises for a folder that is not ours, and for long names
            raise OutputUnwritable(
                f"{output} exists already", "choose another name, or remove it first"
            )
        if not os.path.isdir(folder):  # noqa: PTH112
            raise OutputUnwritable(
                f"the folder {folder} does not exist", "create it, or choose another place"
            )
    if not os.access(folder, os.W_OK | os.X_OK):
        remedy = "choose another place with -o FILE, or set PROFD_HOME"
        raise OutputUnwritable(f"the folder {folder} is not writable for you", remedy)
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise OutputUnwritable(
            f"{str(path)!r} is not UTF-8", "choose another name with -o FILE"
        ) from None
    return path


def find_run(word: str) -> Path:
    """Return the run file of a path, an id, a unique prefix of an id or name, or ``latest``.

    Raises NoSuchRun.
    """
    is_there = os.path.exists(word)  # noqa: PTH110  Path raises for long names
    if os.sep in word or word.endswith(SUFFIX) or (is_there and not os.path.isdir(word)):  # noqa: PTH112
        if not is_there:
            raise NoSuchRun(f"there is no file {word}", "see `profd ls` for the runs there are")
        return Path(word)
    runs = list_runs()
    if word == LATEST:
        if not runs:
            raise NoSuchRun(
                "there are no runs yet",
                "make one with `profd run -- python train.py` or `profd demo`",
            )
        return runs[0]
    found = runs_named(word)
    if not found or not word:
        raise NoSuchRun(f"no run is called {word}", "see `profd ls` for the runs there are")
    if len(found) > 1:
        names = ", ".join(path.stem for path in found[:4]) + (", …" if len(found) > 4 else "")
        raise NoSuchRun(
            f"{word} could be any of {len(found)} runs ({names})", "give more of the id"
        )
    return found[0]


def runs_named(word: str) -> list[Path]:
    """Return the run of an id, or those whose ids or names begin with a word or a script.

    The newest comes first.
    """
    runs = list_runs()
    clean = clean_name(word.removesuffix(".py"))  # as it stands in the id
    begins = (word,) if clean == _NAMELESS else (word, clean)
    alike = [
        path for path in runs if path.stem.startswith(word) or run_name(path).startswith(begins)
    ]
    return [path for path in runs if path.stem == word] or alike


def word_for(run_file: Path) -> str:
    """Return the word for a run in commands: its id, or its path if it lies elsewhere."""
    return run_file.stem if run_file.parent == runs_folder() else str(run_file)


def list_runs() -> list[Path]:
    """Return this user's run files, the newest first."""
    found: list[tuple[str, int, Path]] = []
    for path in runs_folder().glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # the file is gone again
            found += [(path.stem[:15], path.stat().st_mtime_ns, path)] if path.is_file() else []
    return [path for _, _, path in sorted(found, reverse=True)]


def run_name(path: Path) -> str:
    """Return the name in the middle of a run file's id; the whole stem if it is no id."""
    match = _ID.fullmatch(path.stem)
    return match["name"] if match else path.stem


def may_others_write(folder: Path) -> bool:
    """Say whether another user may make files in a folder, or replace it by another one.

    Root does not count as another user. In a folder with the sticky bit nobody may rename what
    belongs to somebody else.
    """
    own, at = (0, os.getuid()), folder.resolve()
    for place in (at, *at.parents):
        found = place.stat()
        by_group = found.st_mode & 0o020 and not _is_own_group(found.st_gid)
        is_shared = by_group or found.st_mode & 0o002 or found.st_uid not in own
        if is_shared and (
            place == at or found.st_uid not in own or not found.st_mode & stat.S_ISVTX
        ):
            return True
    return False


def _is_own_group(gid: int) -> bool:
    """Say whether a group is root's or the user's own.

    Many systems give each user a group of their own, with the user's name.
    """
    import grp
    import pwd

    try:
        return gid == 0 or grp.getgrgid(gid).gr_name == pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return False


def is_on_network(path: Path) -> bool:
    """Say whether a path lies on a network file system."""
    return _file_system(path).startswith(NETWORK_FILE_SYSTEMS)


def is_in_memory(path: Path) -> bool:
    """Say whether a path lies on a file system without a disk.

    Files there take memory.
    """
    return _file_system(path) in ("tmpfs", "ramfs")


def _file_system(path: Path) -> str:
    """Return the type of the file system on which a path of this process lies."""
    return mount_of(path.resolve(), processes.read_text("/proc/self/mounts")).kind


class Mount(NamedTuple):
    """Where a file system is mounted, its type, and what is mounted: a device, or HOST:/PATH."""

    at: Path
    kind: str
    source: str


def mount_of(path: Path, mounts: str) -> Mount:
    """Return the mount that a path lies on; its type is empty if that is unknown.

    ``mounts`` are as in ``/proc/PID/mounts``. No link is followed.
    """
    best = Mount(Path(), "", "")
    for words in (line.split(" ") for line in mounts.splitlines()):
        if len(words) < 3:
            continue
        # The list has spaces, tabs, newlines and backslashes as three octal digits.
        source, at = (
            re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word) for word in words[:2]
        )
        # Of two mounts at the same place the later one covers the other.
        if path.is_relative_to(at) and len(Path(at).parts) >= len(best.at.parts):
            best = Mount(Path(at), words[2], source)
    return best


@contextlib.contextmanager
def replacing(target: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Give a file to write to, which replaces ``target`` once it is written and on the disk.

    Meanwhile it has a name that nobody can guess, and is its owner's alone unless ``mode`` says
    more. After a failure ``target`` is as before. Raises OSError.
    """
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    name = f".profd-{os.urandom(8).hex()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(name, flags, mode, dir_fd=folder)
        try:
            with os.fdopen(made, "wb") as file:
                yield file
                file.flush()
                os.fsync(made)
            os.replace(name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        with contextlib.suppress(OSError):  # some file systems cannot do this for a folder
            os.fsync(folder)
    finally:
        os.close(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file as ``replacing`` does, pipes and devices directly; raises OutputUnwritable."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # raises the system's own error for a folder
        else:
            with replacing(path.resolve(), mode=0o666) as file:
                file.write(content)
    except OSError as error:
        remedy = "choose another place with -o FILE"
        raise OutputUnwritable.of_system(f"cannot write {path}", error, remedy) from error
