"""A folder of packages for programs under any Python: the stand-in for torch, and tqdm as it is
installed here.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from support.folders import PROGRAMS


def site_packages(folder: Path) -> Path:
    """Make a folder for PYTHONPATH.

    By its name profd takes what lies in it for libraries, as it takes torch.
    """
    made = folder / "site-packages"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROGRAMS / "torchlike" / "torch", made / "torch", ignore=ignored)
    found = importlib.util.find_spec("tqdm")
    if found is not None and found.origin is not None:
        shutil.copytree(Path(found.origin).parent, made / "tqdm", ignore=ignored)
    return made
