"""The names of commands, processes and signals, wherever they are shown.

It imports hardly anything, because the first picture of the dashboard waits for it.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path, PurePath

_SCRIPT_ENDING = ".py"
_WORDS_OF_RECORDING = {"stopped": "recording stopped", "duration": "recording ended"}
_OWN_FILE = re.compile(r"(^|/)profd/(cli|daemon|tui)/[\w/]+\.py$")
# the options of Python that say what to run → what is profd's own of it
_OWN = {
    "-m": re.compile(r"^profd(\.|$)"),
    "-c": re.compile(r"(^|[;\n])\s*(from|import) profd[. ]"),
}
_LAUNCHER = re.compile(
    r"(.*/)?(torchrun|accelerate|deepspeed)|torch\.distributed\.(run|launch)"
    r"|accelerate\.commands\..+|deepspeed\..+"
)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names of a list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def script(command: Sequence[str]) -> str:
    """Return a command's name: its script, its module, or else its program.

    Examples are ``train.py``, and ``app.train`` for ``python -m app.train``.
    """
    module = ""
    for word, following in itertools.pairwise(command):
        if word.endswith(_SCRIPT_ENDING):  # a ``-m`` after it is the script's own
            break
        if word == "-m":
            module = following
            break
    if module and not is_launcher(module):
        return module
    path = _script_path(command)
    if path:
        return PurePath(path).name
    return module or (PurePath(command[0]).name if command else "the target")


def script_name(command: Sequence[str]) -> str:
    """Return the default name of a run: that of its script without ``.py``."""
    return script(command).removesuffix(_SCRIPT_ENDING) if command else "run"


def script_folder(command: Sequence[str], cwd: str) -> Path | None:
    """Return the folder of the script in a command that was given in ``cwd``.

    None if the command names no script.
    """
    path = _script_path(command)
    return Path(os.path.normpath(Path(cwd, path).parent)) if path else None


def is_launcher(program: str) -> bool:
    """Say whether a script or module only starts others.

    Then its name says nothing about the training.
    """
    return _LAUNCHER.fullmatch(program) is not None


def is_profd(words: Sequence[str]) -> bool:
    """Say whether a command is profd itself.

    That is profd's command line, or a process that it has started or forked.
    """
    from profd.daemon.forks import is_helper

    if is_helper(words):
        return True
    script = next(
        (word for word in words[1:] if not word.startswith("-")), ""
    )  # pipx has it run by `python -E`
    if "profd" in (PurePath(word).name for word in (*words[:1], script)) or _OWN_FILE.search(
        script
    ):
        return True
    given = itertools.pairwise(words)
    return any(option in _OWN and _OWN[option].search(run) for option, run in given)


def starts_script(words: Sequence[str]) -> bool:
    """Say whether a command is a profd that starts another command, and records that."""
    return is_profd(words) and not {"run", "demo"}.isdisjoint(words)


def process_title(role: str, ordinal: int | None, rank: int | None = None) -> str:
    """Return the title of a process: ``main``, ``rank 0``, ``worker 1``, ``helper``."""
    if role == "main" and rank is not None:
        return f"rank {rank}"
    return role if ordinal is None else f"{role} {ordinal}"


def signal_name(number: int | None) -> str | None:
    """Return the name of a signal; None of none.

    A real-time signal between the first and the last has only a number.
    """
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_stopped_by_user(code: int | None, signal_name: str | None) -> bool:
    """Say whether a process ended as Ctrl-C ends it: by SIGINT, or with a shell's code for that."""
    return signal_name == "SIGINT" or code == 128 + signal.SIGINT


def exit_words(code: int | None, signal_name: str | None) -> str:
    """Return how a process ended: ``ended with 0``, ``was ended by SIGKILL``, ``ended``."""
    if is_stopped_by_user(code, signal_name):
        return f"was stopped by Ctrl-C ({signal_name or f'exit code {code}'})"
    if signal_name is not None:
        return f"was ended by {signal_name}"
    return "ended" if code is None else f"ended with {code}"


def ending(
    state: str, why_ended: str | None, exit_code: int | None, exit_signal: str | None
) -> str:
    """Return how a run ended.

    This depends on its state, why its recording ended, and what is known of the script's end.
    """
    if state == "live":
        return "still running"
    if state == "interrupted":
        return "recording broke off: profd itself was ended"
    if why_ended == "failed":
        return "recording failed"
    if exit_code is None and exit_signal is None and why_ended in _WORDS_OF_RECORDING:
        return _WORDS_OF_RECORDING[why_ended]
    return exit_words(exit_code, exit_signal).removeprefix("was ")


def _script_path(command: Sequence[str]) -> str:
    return next((word for word in command if word.endswith(_SCRIPT_ENDING)), "")
