"""Runs a training program as it is, and keeps the diary that programs of
``tests/programs/steploops`` keep.

Usage: ``stepdiary.py DIARY PROGRAM [ARGUMENT ...]``. A step is one of an optimizer, which torch
tells by a hook of its own, so that nothing of the program is replaced. Knows nothing of profd.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

# After torch: it would bring the stand-in.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "programs" / "steploops"))
import diary


class Counted:
    """Takes note of each step; the first one says that the training has begun."""

    def __init__(self) -> None:
        self._begun = False

    def __call__(self, _optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        """Take note of a step."""
        if not self._begun:
            self._begun = True
            diary.begin()
        diary.stepped()


if __name__ == "__main__":
    register_optimizer_step_post_hook(Counted())
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
