"""How a run is called that nobody named: after the script in its command."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

_MODULE_OPTION = "-m"
# Launchers whose own name says nothing where they run a script of the user's.
_LAUNCHERS = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"})


def script_name(command: Sequence[str]) -> str:
    """Return the name of the script in a command: its file without ``.py``, its module, else the program.

    ``python -u train.py --lr 1`` gives ``train``, ``python -m app.train`` gives ``app.train``, ``torchrun x.py`` ``x``.
    """
    module = _module(command)
    if module and module not in _LAUNCHERS:
        return module
    scripts = [word for word in command if word.endswith(".py")]
    if scripts:
        return Path(scripts[0]).stem
    return module or next((Path(word).name for word in command), "run")


def script_folder(command: Sequence[str], cwd: str) -> Path | None:
    """Return the folder of the script in a command that was given in ``cwd``; None where it names none."""
    script = next((word for word in command if word.endswith(".py")), None)
    return Path(os.path.normpath(Path(cwd, script).parent)) if script else None


def _module(command: Sequence[str]) -> str:
    """Return the module that Python's own ``-m`` names; empty where a script comes first, or there is none."""
    for word, following in itertools.pairwise(command):
        if word.endswith(".py"):
            return ""
        if word == _MODULE_OPTION:
            return following
    return ""
