"""What a command is called: by its script. Imports hardly anything: the first picture of the dashboard waits for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import PurePath


def script(command: Sequence[str]) -> str:
    """Return what runs in a command: the name of its script, its module after ``-m``, else of its program."""
    for word, following in itertools.zip_longest(command, command[1:], fillvalue=""):
        if word.endswith(".py"):
            return PurePath(word).name
        if word == "-m" and following:
            return following
    return PurePath(command[0]).name if command else "the target"
