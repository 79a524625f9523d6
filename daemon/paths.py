"""Where the files of profd lie, how a run is named, and which run a word on the command line means."""

from __future__ import annotations

import os
import re
import secrets
from datetime import datetime
from pathlib import Path

import platformdirs

from profd.daemon.errors import NoSuchRun, OutputUnwritable

SUFFIX = ".profd"
_ID = re.compile(r"(?P<time>\d{8}-\d{6})-(?P<name>.+)-[0-9a-f]{4}")
# Write-ahead logging needs memory shared between its users, which these do not give over machines.
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "fuse")


def runs_folder() -> Path:
    """Return the folder of this user's runs: ``$PROFD_HOME/runs``, else in the platform's folder for user state."""
    home = os.environ.get("PROFD_HOME")
    return (Path(home) if home else Path(platformdirs.user_state_dir("profd"))) / "runs"


def runtime_folder() -> Path:
    """Return the folder of this user's control sockets, made private.

    Raises OutputUnwritable where it cannot be made, or is another user's.
    """
    home = os.environ.get("PROFD_HOME")
    # Not by platformdirs, which warns on stderr where a container or cron sets no such folder.
    session = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(home) / "run" if home else Path(session) / "profd" if session else None
    # The path of a Unix socket holds 107 bytes, and a run's id takes about 50 of them.
    if folder is None or len(os.fsencode(folder)) > 50:
        folder = Path(f"/tmp/profd-{os.getuid()}")
    return make_private(folder)


def make_private(folder: Path) -> Path:
    """Create a folder that only its owner may enter, and return it; raises OutputUnwritable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise OutputUnwritable(
            f"cannot create {folder} ({error.strerror})", "set PROFD_HOME to a folder that you can write to"
        ) from error
    if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise OutputUnwritable(f"{folder} is not yours", "set PROFD_HOME to a folder of your own")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def new_run_id(name: str, now: datetime | None = None) -> str:
    """Return an id for a run: ``YYYYMMDD-HHMMSS-<name>-<4 hex>``, safe as a file name."""
    moment = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{clean_name(name)}-{secrets.token_hex(2)}"


def clean_name(name: str) -> str:
    """Return ``name`` reduced to what may stand in a file name: letters, digits, ``_`` and ``.``, at most 24."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("._")[:24] or "run"


def new_run_file(run_id: str, output: Path | None = None) -> Path:
    """Return where a new run is to be written, its folder made; raises OutputUnwritable where nothing can be."""
    if output is None:
        folder, path = runs_folder(), runs_folder() / f"{run_id}{SUFFIX}"
        make_private(folder)
    else:
        folder, path = output.absolute().parent, output.absolute()
        if path.exists():
            raise OutputUnwritable(f"{output} exists already", "choose another name, or remove it first")
        if not folder.is_dir():
            raise OutputUnwritable(f"the folder {folder} does not exist", "create it, or choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputUnwritable(
            f"the folder {folder} is not writable for you", "choose another place with -o FILE, or set PROFD_HOME"
        )
    return path


def find_run(word: str) -> Path:
    """Return the run file that is meant: a path, an id, a unique prefix of an id or a name, or ``latest``.

    Raises NoSuchRun where none, or more than one, answers to it.
    """
    if os.sep in word or word.endswith(SUFFIX) or Path(word).is_file():
        path = Path(word)
        if not path.exists():
            raise NoSuchRun(f"there is no file {word}", "see `profd ls` for the runs there are")
        return path
    runs = list_runs()
    if word == "latest":
        if not runs:
            raise NoSuchRun("there are no runs yet", "make one with `profd run -- python train.py` or `profd demo`")
        return runs[0]
    exact = [path for path in runs if path.stem == word]
    found = exact or [path for path in runs if path.stem.startswith(word) or run_name(path).startswith(word)]
    if not found:
        raise NoSuchRun(f"no run is called {word}", "see `profd ls` for the runs there are")
    if len(found) > 1:
        names = ", ".join(path.stem for path in found[:4]) + (", …" if len(found) > 4 else "")
        raise NoSuchRun(f"{word} could be any of {len(found)} runs ({names})", "give more of the id")
    return found[0]


def word_for(run_file: Path) -> str:
    """Return the word by which commands find a run again: its id, or its path where it lies elsewhere."""
    return run_file.stem if run_file.parent == runs_folder() else str(run_file)


def list_runs() -> list[Path]:
    """Return this user's run files, the newest first."""
    folder = runs_folder()
    found = [path for path in folder.glob(f"*{SUFFIX}") if path.is_file()] if folder.is_dir() else []
    return sorted(found, key=lambda path: (path.stem[:15], path.stat().st_mtime_ns), reverse=True)


def run_name(path: Path) -> str:
    """Return the name in the middle of a run file's id; the whole stem where it is no id."""
    match = _ID.fullmatch(path.stem)
    return match["name"] if match else path.stem


def is_on_network(path: Path) -> bool:
    """Say whether a path lies on a network file system, where a live run file would not be safe."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, mount, file_system, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        inside = path.is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, file_system
    return kind.startswith(NETWORK_FILE_SYSTEMS)
