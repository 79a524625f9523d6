"""The installation in which this profd runs, and the commands that add packages to it."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_OTHER_EXTRAS = re.compile(r"profd\[(?P<extras>[\w,]+)\]")


def install_command(*arguments: str) -> str:
    """Return the command that gives these arguments to ``pip install`` for this profd.

    It is meant for the environment in which profd runs, which is often not that of the training.
    """
    return f"{_installer()} {shlex.join(arguments)}"


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra of profd, by their own names."""
    return install_command(*_packages(extra))


def _installer() -> str:
    prefix = Path(sys.prefix)
    python = shlex.quote(sys.executable)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    if importlib.util.find_spec("pip") is None:  # as uv makes environments, `uv tool` too
        return f"uv pip install --python {python}"
    is_of_system = sys.prefix == sys.base_prefix
    marker = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")  # PEP 668
    flag = " --break-system-packages" if is_of_system and marker.exists() else ""
    return f"{python} -m pip install{flag}"


def _packages(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra, and of the extras in it."""
    from importlib import metadata

    for requirement in metadata.requires("profd") or ():
        package, _, marker = requirement.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", marker):
            within = _OTHER_EXTRAS.match(package)
            if within is None:
                yield package.strip()
            for other in within["extras"].split(",") if within else ():
                yield from _packages(other)
