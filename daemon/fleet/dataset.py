"""A data set of many runs: where its files lie and which columns they have.

It is a folder, or a URL that fsspec knows, with
``<table>/date=…/job=…/node=…/rank=…/<run>-<export>.parquet``, and for each run
``manifests/<run>.json``, which names its files: others are not part of the data set. Files are
written before the manifest, and removed after.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

from profd.daemon.clock import SECOND_NS
from profd.daemon.errors import OutputUnwritable, RunUnreadable, UsageError
from profd.daemon.exports.tables import columns
from profd.daemon.paths import replacing
from profd.daemon.store.remote import open_url, reaching

if TYPE_CHECKING:
    import fsspec

VERSION = 1
"""Rises when a column or a file changes its meaning; new columns may come without that."""
DAY_NS = 86_400 * SECOND_NS
MANIFESTS = "manifests"
NONE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, and with it every reader of such folders, writes for a value that is not known."""
TABLES: Mapping[str, Mapping[str, type]] = {
    "samples": columns(
        "run str, pid int, role str, thread str, is_main bool, minute_ns int, stack int, samples "
        "int, time_ns int, gpu_known_ns int, gpu_idle_ns int"
    ),
    "stacks": columns(
        "run str, stack int, phase str, function str, file str, line int, user_function str, "
        "user_file str, user_line int, path str"
    ),
    "series": columns(
        "run str, pid int, os_tid int, device str, name str, at_ns int, known_ns int, mean float, "
        "least float, most float"
    ),
    "steps": columns("run str, pid int, at_ns int, duration_ns int, steps float"),
    "findings": columns(
        "run str, rule str, severity str, label str, title str, function str, file str, line int, "
        "gain_bound float, from_ns int, to_ns int, lost_ns int, gpu_lost_ns int"
    ),
    "runs": columns(
        "run str, pid int, id str, name str, host str, command str, profd str, state str, "
        "started_ns int, "
        "ended_ns int, lived_ns int, gpus int, gpu_model str, local_rank int, world_size int"
    ),
}
"""The columns of each table."""

_LONGEST = 120
_DIGEST = 16


class Partition(NamedTuple):
    """Which folder of a table a row belongs to."""

    date: str
    job: str
    node: str
    rank: int | None

    @property
    def path(self) -> str:
        rank = NONE if self.rank is None else str(self.rank)
        return f"date={self.date}/job={encoded(self.job)}/node={encoded(self.node)}/rank={rank}"


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a run; ``path`` is relative to the data set."""

    table: str
    path: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """A run in a data set: which files it consists of, and when it was."""

    version: int
    run: str
    started_ns: int
    ended_ns: int
    files: tuple[DataFile, ...]

    @property
    def samples(self) -> int:
        return sum(file.rows for file in self.files if file.table == "samples")

    def paths(self, table: str) -> list[str]:
        return [file.path for file in self.files if file.table == table and file.rows]


def encoded(text: str) -> str:
    """Return a text as one name in a path, as Hive's readers expect it.

    It is percent-encoded, and shortened by a digest.
    """
    if not text:
        return NONE
    name = _quoted(text)
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST]
    kept = text[:_LONGEST]
    while len(_quoted(kept)) + 1 + _DIGEST > _LONGEST:
        kept = kept[:-1]
    return f"{_quoted(kept)}~{digest}"


def _quoted(text: str) -> str:
    name = quote(text, safe="+@,", errors="replace")
    # A name that begins so is hidden from readers of such folders, or stands for what is not known.
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith((".", "_")) else name


def date_of(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // DAY_NS * 86_400, timezone.utc).date().isoformat()


def is_inside(path: str) -> bool:
    """Say whether a manifest's path is that of a file of the data set and nothing else."""
    parts = path.split("/")
    return (
        parts[0] in TABLES and not {"", ".", ".."} & set(parts) and not set("*?[]{}\\") & set(path)
    )


class DataSet:
    """A place for the runs of many jobs and nodes."""

    def __init__(self, url: str) -> None:
        """Name the place.

        Raises MissingTool without fsspec or what it needs, UsageError if it is none.
        """
        self.url = url
        self.files, self.root = open_url(url)
        if set("*?[]{}") & set(self.root):
            raise UsageError(
                f"{url} has a character that stands for others", "name it without * ? [ ] { }"
            )

    def place(self, path: str) -> str:
        """Return the place of a file as ``file_system`` opens it."""
        place = f"{self.root}/{path}"
        return place if self.file_system is None else str(self.files.unstrip_protocol(place))

    @cached_property
    def file_system(self) -> fsspec.AbstractFileSystem | None:
        """What opens the files; None: they are in a folder of this machine."""
        from fsspec.implementations.local import LocalFileSystem

        return None if isinstance(self.files, LocalFileSystem) else self.files

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all runs, in order of their names; raises RunUnreadable."""
        with self._reading():
            if not self.files.isdir(f"{self.root}/{MANIFESTS}"):
                remedy = "write one with `profd export RUN --format parquet --to URL`"
                raise RunUnreadable(f"{self.url} holds no data set", remedy)
            self.files.invalidate_cache()
            paths = sorted(self.files.glob(f"{self.root}/{MANIFESTS}/*.json"))
            contents: dict[str, Any] = self.files.cat(paths) if paths else {}
        return [self._decoded(path, contents[path]) for path in paths]

    def manifest(self, run: str) -> Manifest | None:
        path = f"{self.root}/{MANIFESTS}/{encoded(run)}.json"
        with self._reading():
            if not self.files.exists(path):
                return None
            return self._decoded(path, self.files.cat_file(path))

    def put(self, path: str, source: Path) -> None:
        """Copy a local file to its place, whole as soon as it is there; raises OutputUnwritable."""
        place = f"{self.root}/{path}"
        with self._writing():
            if self.file_system is not None:
                self.files.makedirs(place.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(source), place)
                return
            target = Path(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as content, replacing(target, mode=0o666) as file:
                shutil.copyfileobj(content, file)

    def commit(self, manifest: Manifest, source: Path) -> None:
        """Make a run's new files the ones that count.

        ``source`` is a local file that may be overwritten.
        """
        with self._writing():
            source.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        self.put(f"{MANIFESTS}/{encoded(manifest.run)}.json", source)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._writing(), contextlib.suppress(FileNotFoundError):
                self.files.rm_file(f"{self.root}/{path}")

    def leftovers(self, folders: Iterable[str], prefix: str) -> list[str]:
        """Return the files in some folders that begin with a prefix."""
        found = []
        for folder in folders:
            with self._reading():
                places = self.files.glob(f"{self.root}/{folder}/{prefix}*")
            found += [f"{folder}/{PurePath(place).name}" for place in places]
        return found

    def _decoded(self, path: str, content: object) -> Manifest:
        if isinstance(content, Exception):
            raise RunUnreadable(f"cannot read {path} ({content})", "try again")
        try:
            version = msgspec.json.decode(bytes(content), type=_Versioned).version  # type: ignore[call-overload]
            if version > VERSION:
                raise RunUnreadable(
                    f"{path} is of version {version}, and this profd reads {VERSION}",
                    "update profd",
                )
            manifest = msgspec.json.decode(bytes(content), type=Manifest)  # type: ignore[call-overload]
        except msgspec.DecodeError as error:
            raise RunUnreadable(
                f"{path} is no manifest ({error})", "export its run again"
            ) from None
        if not all(is_inside(file.path) for file in manifest.files):
            raise RunUnreadable(
                f"{path} names files that lie elsewhere", "remove it, or export its run again"
            )
        return manifest

    def _reading(self) -> AbstractContextManager[None]:
        return reaching(
            lambda said: RunUnreadable(f"cannot read {self.url} ({said})", "see that it is there")
        )

    def _writing(self) -> AbstractContextManager[None]:
        remedy = "choose another place with --to URL"
        return reaching(
            lambda said: OutputUnwritable(f"cannot write to {self.url} ({said})", remedy)
        )


class _Versioned(msgspec.Struct, frozen=True):
    version: int
