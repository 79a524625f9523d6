"""A real terminal for tests: a tmux of its own, with keys to press and a screen to wait for.

Each ``Terminal`` is its own tmux server on its own socket, so that no test meets another, or the
tmux of whoever runs them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.waiting import until

_EXITED = "profd-test-exited:"


class Terminal:
    """A terminal of ``columns`` by ``lines``.

    A context manager that ends whatever still runs in it.
    """

    def __init__(
        self, folder: Path, *, columns: int = 120, lines: int = 36, term: str = "xterm-256color"
    ) -> None:
        """Start a shell in ``folder``, where the server's socket lies too."""
        self._socket = folder / "tmux.sock"
        self._term = term
        self._tmux(
            "new-session",
            "-d",
            "-x",
            str(columns),
            "-y",
            str(lines),
            "-c",
            str(folder),
            "exec env PS1='$ ' sh",
        )
        self.wait_for("$")  # until then tmux may not have set the modes of the terminal

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the terminal away from whatever runs in it."""
        subprocess.run(
            ["tmux", "-S", self._socket, "kill-server"], check=False, capture_output=True
        )

    def start(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run a command in the shell.

        Its exit code is shown when it has ended, see ``wait_ended``.
        """
        variables = {"TERM": self._term, **(environment or {})}
        words = (
            "env",
            "-uCOLUMNS",
            "-uLINES",
            *(f"{name}={value}" for name, value in variables.items()),
        )
        line = shlex.join([*words, *map(str, command)])
        self.type(f"{line}; echo {_EXITED[:-1]}''{_EXITED[-1]}$?")
        self.press("Enter")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names: ``q``, ``Enter``, ``Escape``, ``C-c``, ``Down``."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def colors(self) -> str:
        """Return the screen with its colors, as escape sequences."""
        return self._tmux("capture-pane", "-p", "-e", "-N")

    def set_background(self, color: str) -> None:
        """Give the terminal a background, which it tells a program that asks."""
        self._tmux("set", "-g", "window-style", f"bg={color}")

    def wait_for(self, *texts: str) -> str:
        """Wait until the screen has all of some texts on it, and return the screen: it may be drawn
        in parts.
        """

        def screen() -> str | None:
            shown = self.screen()
            return shown if all(text in shown for text in texts) else None

        return until(screen, lambda: f"{texts} on the screen:\n{self.screen()}")

    def wait_ended(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        screen = self.wait_for(_EXITED)
        return int(screen.rpartition(_EXITED)[2].split()[0])

    def modes(self) -> str:
        """Return the settings of the terminal as ``stty -g`` gives them."""
        device = self._tmux("display-message", "-p", "#{pane_tty}").strip()
        return subprocess.run(
            ["stty", "-F", device, "-g"], check=True, capture_output=True, text=True
        ).stdout.strip()

    def uses_alternate_screen(self) -> bool:
        """Say whether a full-screen program has the terminal, or left it so."""
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def takes_mouse(self) -> bool:
        """Say whether a program has asked for the mouse, or left it so."""
        return self._tmux("display-message", "-p", "#{mouse_any_flag}").strip() == "1"

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words]
        environment = {
            name: value for name, value in os.environ.items() if name not in {"TMUX", "TMUX_PANE"}
        }
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout
