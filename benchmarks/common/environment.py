"""The environment of the programs that need frameworks: made once, in a cache folder, beside the
one that runs this.

It sees the packages of the running environment through a .pth file, so that torch is not installed
twice.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("transformers", "accelerate", "lightning", "torchmetrics", "tensorboard", "timm")
LAUNCHERS = (
    "accelerate",
    "lightning",
    "ipython",
    "ipykernel",
    "jupyter-client",
    "ray[train]",
    "setproctitle",
    "uv",
    "pipx",
)
BUILT_HERE = ("setuptools", "wheel", "ninja", "deepspeed")
"""What builds itself with the torch that is there."""


class Environment(NamedTuple):
    """A virtual environment with ``PACKAGES``."""

    folder: Path

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return str(self.folder / "bin" / "python")

    def versions(self) -> str:
        """Return the packages with their versions, in words."""
        prints = "; ".join(
            f"print('{name}', metadata.version('{name}'), end=', ')" for name in PACKAGES
        )
        words = [self.python, "-c", f"from importlib import metadata; {prints}"]
        return subprocess.run(
            words, check=True, capture_output=True, text=True
        ).stdout.removesuffix(", ")


def make_environment(
    cache: Path,
    name: str = "frameworks",
    packages: tuple[str, ...] = PACKAGES,
    built: tuple[str, ...] = (),
) -> Environment:
    """Return the environment in ``cache``, made and filled where it is not there yet.

    Pip takes half a minute.
    """
    made = Environment(cache / f"{name}-{sys.version_info.major}.{sys.version_info.minor}")
    stamp = made.folder / "packages"
    if not stamp.exists() or stamp.read_text() != " ".join(packages + built):
        print(
            f"installing {', '.join(packages + built)} into {made.folder}",
            file=sys.stderr,
            flush=True,
        )
        venv.create(made.folder, with_pip=True, clear=True)
        _see_packages_of_this(made)
        words = [made.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*words, *packages], check=True)
        if built:
            subprocess.run([*words, "--no-build-isolation", *built], check=True)
        stamp.write_text(" ".join(packages + built))
    _see_packages_of_this(made)  # another one may have made it
    return made


def _see_packages_of_this(made: Environment) -> None:
    inner = sysconfig.get_path("purelib", vars={"base": str(made.folder)})
    Path(inner, "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
