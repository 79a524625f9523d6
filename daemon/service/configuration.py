"""The supervisor's configuration, a TOML file: every key, its default, and its checks.

See docs/daemon.md.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from profd.daemon import paths
from profd.daemon.errors import UsageError
from profd.daemon.recordingconfig import RECORDING

_PAGE = "docs/daemon.md shows what it holds"
_UNKNOWN_KEY = re.compile("unknown field `(.+?)`")

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastZero = Annotated[float, msgspec.Meta(ge=0)]


class JobRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which processes are recorded: every condition must hold.

    ``command`` is a regular expression, searched in the words of the command joined by blanks.
    ``users`` are names or numbers.
    """

    name: str = ""
    torch: bool = False
    gpu: bool = False
    command: str = ""
    users: tuple[str, ...] = ()
    min_age_s: AtLeastZero = 5.0


class Exclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which processes are never recorded, whatever rule they meet: every condition must hold."""

    command: str = ""
    users: tuple[str, ...] = ()


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long each part of a run is kept: its detail (the run file), its report, or an incident's.

    An incident is a run that has a finding worth a warning, hung, or died. ``max_bytes`` limits all
    of these together.
    """

    detail_hours: Positive = 168.0
    report_hours: Positive = 720.0
    incident_hours: Positive = 8760.0
    max_bytes: Annotated[int, msgspec.Meta(gt=0)] = 20_000_000_000


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The supervisor's configuration.

    ``budget_percent`` is of one core, for all sessions of the host together; a session needs
    ``least_percent``, so their ratio is how many there can be at a time. The metrics of all live
    runs are served at ``metrics`` and sent to ``otlp``.
    """

    folder: str = ""
    rate_hz: Annotated[int, msgspec.Meta(ge=1, le=RECORDING.highest_rate_hz)] = 20
    budget_percent: Annotated[float, msgspec.Meta(ge=2)] = 10.0
    least_percent: Positive = 2.0
    most_per_user: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many of the sessions may be of one user.

    0 means all if that user supervises, and three in five for root.
    """
    look_every_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0
    slice_hours: Positive = 24.0
    hang_after_s: AtLeastZero = 120.0
    on_hang: str = ""
    nccl_ras: Literal["off", "hang"] = "hang"
    at_exit: Literal["leave", "stop"] = "leave"
    metrics: Annotated[str, msgspec.Meta(pattern=r"^(\S+:)?[0-9]{1,5}$")] | None = None
    otlp: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/\s]")] | None = None
    rule: tuple[JobRule, ...] = (JobRule(name="torch", torch=True),)
    exclude: tuple[Exclusion, ...] = ()
    retention: Retention = Retention()

    @property
    def most_of_one_user(self) -> int:
        if self.most_per_user:
            return self.most_per_user
        return self.most_sessions if os.geteuid() != 0 else max(self.most_sessions * 3 // 5, 1)

    @property
    def most_sessions(self) -> int:
        return max(int(self.budget_percent / self.least_percent), 1)


def default_file() -> Path:
    """Return the usual path of the configuration; the file need not exist."""
    return paths.own_file("daemon.toml")


def read_configuration(file: Path) -> Configuration:
    """Return the configuration in a file; raises UsageError with its mistake."""
    try:
        with file.open("rb") as opened:
            state, content = os.fstat(opened.fileno()), opened.read()
    except OSError as error:
        what, remedy = f"{file} cannot be read", "name another one with --config FILE"
        raise UsageError.of_system(what, error, remedy) from error
    # It names commands, which root would run.
    if os.geteuid() == 0 and (state.st_uid != 0 or state.st_mode & 0o022):
        raise UsageError(
            f"{file} may be written by others than root", f"chown root {file}; chmod go-w {file}"
        )
    return decode(content, str(file))


def decode(content: bytes, where: str) -> Configuration:
    """Return the configuration in a text; raises UsageError, which calls the text ``where``."""
    try:
        configuration = msgspec.toml.decode(content, type=Configuration)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}", _remedy(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no TOML ({error})", _PAGE) from error
    if configuration.least_percent > configuration.budget_percent:
        raise UsageError(
            f"{where}: least_percent is more than budget_percent", "a session would have no room"
        )
    if configuration.folder and not os.path.isabs(configuration.folder):  # noqa: PTH117
        raise UsageError(
            f"{where}: folder {configuration.folder} is no absolute path", "write it from / on"
        )
    for number, rule in enumerate(configuration.rule, 1):
        if not (rule.torch or rule.gpu or rule.command):
            raise UsageError(
                f"{where}, rule {number}: it would meet every Python",
                "give it torch, gpu or command",
            )
        _check_pattern(rule.command, f"{where}, rule {number}")
    for number, exclusion in enumerate(configuration.exclude, 1):
        if not (exclusion.command or exclusion.users):
            raise UsageError(
                f"{where}, exclude {number}: it would meet everything", "give it command or users"
            )
        _check_pattern(exclusion.command, f"{where}, exclude {number}")
    return configuration


def _remedy(mistake: str) -> str:
    """Return the nearest key to one that there is not; else the page that has them all."""
    unknown = _UNKNOWN_KEY.search(mistake)
    kinds = (Configuration, JobRule, Exclusion, Retention)
    keys = [key for kind in kinds for key in kind.__struct_fields__]
    near = difflib.get_close_matches(unknown[1], keys, 1, 0.5) if unknown else []
    return f"did you mean {near[0]}?" if near else _PAGE


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{where}: {pattern!r} is no regular expression ({error})", "mend its command"
        ) from error
