"""Runs a training program that times its own phases: the truth that profd's shares are compared
with.

Usage: ``phasetruth.py DIARY STARTED_NS PROGRAM [ARGUMENT ...]``; STARTED_NS is when this process
was started. A line of the diary is ``at_ns phase``: from then on the program was in it. The program
itself stays as it is: ``phasehooks`` wraps functions that it calls. Knows nothing of profd.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from truth.phaseclock import PhaseClock

ANYWHERE = {"evaluate": "evaluation", "get_batch": "data load in process"}
OWN_FUNCTIONS = {
    "functional.py": {"draw": "data load in process", "loss_fn": "forward", "adam": "optimizer"},
    "numeric.py": {name: name for name in ("draw", "predict", "gradients", "descend")},
}
"""Functions of the programs themselves, and their phases.

In NumPy alone they take the place of phases.

``loss_fn`` is what torch.func differentiates: the forward pass, up to the loss in it.
"""


def keep_diary(clock: PhaseClock, diary: Path) -> None:
    """Write the diary when this process exits.

    A DataLoader's worker inherits the order, and writes nothing.
    """
    owner = os.getpid()

    def write() -> None:
        if os.getpid() == owner:
            diary.write_text(clock.diary())

    atexit.register(write)


def main() -> None:
    """Wrap what the program uses, load it, and call its ``main``."""
    program = Path(sys.argv[3])
    own = OWN_FUNCTIONS.get(program.name, {}) | ANYWHERE
    clock = PhaseClock(int(sys.argv[2]), own=own.values())
    keep_diary(clock, Path(sys.argv[1]))
    sys.argv = sys.argv[3:]
    if "import torch" in program.read_text():
        from truth import phasehooks  # imports torch, which is to count as startup

        phasehooks.install(clock, program.read_text())
    specification = importlib.util.spec_from_file_location("program", program)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    for name, phase in own.items():
        if hasattr(module, name):
            clock.wrap(module, name, phase)
    module.main()


if __name__ == "__main__":
    main()
