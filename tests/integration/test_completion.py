"""Words are completed in the shells themselves: bash, zsh and fish, each in a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.synthetic import RUN_ID, write_run
from support.terminal import Terminal

SET_UP = {
    "bash": ("bash --norc -i", 'eval "$(_PROFD_COMPLETE=bash_source profd)"'),
    "zsh": (
        "zsh -f -i",
        'autoload -Uz compinit; compinit -D; eval "$(_PROFD_COMPLETE=zsh_source profd)"',
    ),
    "fish": ("fish --no-config", "_PROFD_COMPLETE=fish_source profd | source"),
}
TYPED = {
    "profd summ": ("profd", "summary"),
    "profd summary --gpu-i": ("profd", "summary", "--gpu-idle"),
    "profd report lat": ("profd", "report", "latest"),
    "profd view 2026": ("profd", "view", RUN_ID),
    "profd diff lat": ("profd", "diff", "latest"),
    "profd export --format speed": ("profd", "export", "--format", "speedscope"),
    "profd summary --phase opti": ("profd", "summary", "--phase", "optimizer"),
    "profd summary --phase data\\ w": ("profd", "summary", "--phase", "data wait"),
    "profd summary ./else": ("profd", "summary", "./elsewhere.profd"),
    "profd run -- python ./tra": ("profd", "run", "--", "python", "./train.py"),
}


IN_EACH = (
    "profd summ",
    "profd view 2026",
    "profd summary --phase data\\ w",
    "profd run -- python ./tra",
)
"""What depends on the shell: words, descriptions, quotes and files. profd says the same to each."""


@pytest.mark.parametrize(
    "shell", [pytest.param(name, marks=pytest.mark.requires("tmux", name)) for name in SET_UP]
)
def test_a_shell_completes_commands_options_runs_phases_formats_and_files(
    shell: str, tmp_path: Path, profd_home: Path
) -> None:
    (profd_home / "runs").mkdir()
    write_run(profd_home / "runs" / f"{RUN_ID}.profd", seconds=1)
    for name in ("elsewhere.profd", "train.py"):
        (tmp_path / name).touch()
    program, set_up = SET_UP[shell]
    scripts = Path(sys.executable).parent
    environment = {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PROFD_HOME": str(profd_home),
        "HOME": str(tmp_path),
        "TERM": "xterm",
    }
    with Terminal(tmp_path) as terminal:
        terminal.start(program.split(), environment)
        terminal.type(f"{set_up}; printf '<%s>' is ready")
        terminal.press("Enter")
        terminal.wait_for("<is><ready>")
        for typed, words in TYPED.items():
            if shell != "bash" and typed not in IN_EACH:
                continue
            terminal.type(typed)
            # The command becomes the words of another one, which shows how the shell splits it.
            terminal.press("Tab", "C-a")
            terminal.type("clear; printf '<%s>' ")
            terminal.press("Enter")
            terminal.wait_for("".join(f"<{word}>" for word in words))
