"""A copy of the tree to break, so that nobody's files are touched, and the tests run in it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

_NOTHING_COLLECTED = 5
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


class Worktree:
    """A copy of the files that git knows or would add, with profd imported from it."""

    def __init__(self, source: Path, folder: Path) -> None:
        """Copy ``source`` to ``folder``; raises RuntimeError where tests in it would import another profd."""
        self.root = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=source,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            file = source / name
            if (
                file.is_symlink() or file.exists()
            ):  # not one that was removed and is not committed yet
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, folder / name, follow_symlinks=False)
        self._python = self._install()
        self._check_imports()

    def run(self, tests: Sequence[str], options: Sequence[str], limit_s: float) -> str | None:
        """Run tests up to the first failure, and return which that is; None where all passed."""
        command = [
            self._python,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
            *tests,
        ]
        process = subprocess.Popen(
            command,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"no end within {limit_s:.0f} s"
        if process.returncode in (0, _NOTHING_COLLECTED):
            return None
        failed = _FAILED.search(said)
        return failed[1] if failed else f"pytest ended with {process.returncode}"

    def _install(self) -> str:
        """Make an environment with this copy of profd and all else of ours, and return its Python.

        PYTHONPATH would not do: profd and all that it starts look for nothing there.
        """
        made = self.root / ".venv"
        venv.create(made, symlinks=True)
        ours = [folder for folder in sys.path if folder.endswith("-packages")]
        for site in (made / "lib").glob("python*/site-packages"):
            (site / "copy.pth").write_text("\n".join([str(self.root / "src"), *ours, ""]))
        for tool in Path(sysconfig.get_path("scripts")).iterdir():
            if not (made / "bin" / tool.name).exists():
                (made / "bin" / tool.name).symlink_to(tool)
        for name in ("profd", "profd-python"):
            (made / "bin" / name).unlink(missing_ok=True)
        shutil.copy2(self.root / "packaging" / "command" / "profd", made / "bin" / "profd")
        return str(made / "bin" / "python")

    def _check_imports(self) -> None:
        """Make sure that this copy is what tests import, not the installed one."""
        asked = "import profd.daemon.clock as module; print(module.__file__)"
        answer = subprocess.run(
            [self._python, "-I", "-c", asked], cwd=self.root, capture_output=True, text=True
        )
        if not Path(answer.stdout.strip() or "/").is_relative_to(self.root):
            raise RuntimeError(
                f"tests in {self.root} would import {answer.stdout.strip() or answer.stderr}"
            )
