"""The way to the terminal: its size, its keys, and whether its background is light.

It is asked for that, and nothing waits for the answer. With a terminal that gives none, the theme
stays as it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from textual._xterm_parser import XTermParser
from textual.color import Color
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

DRAWS_ON = 2  # stderr, as in Textual
_QUESTION = "\x1b]11;?\x1b\\"
_COLOR = r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})"
_ANSWER = re.compile(rf"\x1b\]11;(?:{_COLOR})?[^\x07\x1b]{{0,40}}(?:\x07|\x1b\\)", re.IGNORECASE)
_BEGUN = re.compile(r"\x1b\](?:1(?:1(?:;[^\x07\x1b]{0,40}\x1b?)?)?)?\Z")


@dataclass
class BackgroundTold(Message):
    """The terminal has told its background."""

    is_light: bool


class Parser(XTermParser):
    """Takes the terminal's answer out of what is typed."""

    _held = ""

    def feed(self, data: str) -> Iterable[Message]:
        """Yield what Textual makes of some characters, and the answer.

        An answer that has only begun waits for its rest. Without characters the input is over.
        """
        text, self._held = self._held + data, ""
        if data and (begun := _BEGUN.search(text)):
            text, self._held = text[: begun.start()], begun[0]
        for parts in filter(any, _ANSWER.findall(text)):
            red, green, blue = (int((2 * part)[:2], 16) for part in parts)
            yield BackgroundTold(is_light=Color(red, green, blue).brightness > 0.5)
        if rest := _ANSWER.sub("", text):
            yield from super().feed(rest)
        if not data:
            yield from super().feed("")


class TerminalDriver(LinuxDriver):
    """Asks the terminal that it draws on for its size, and once for its background.

    Textual's driver asks stdout, which may be a file.
    """

    _has_asked = False

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        # The console of Linux writes on the screen what it does not understand.
        if not self._has_asked and os.environ.get("TERM") != "linux":
            self._has_asked = True
            self.write(_QUESTION)
            self.flush()

    def run_input_thread(self) -> None:
        vars(linux_driver)["XTermParser"] = Parser  # the driver makes its own by this name
        super().run_input_thread()

    def _get_terminal_size(self) -> tuple[int, int]:
        return os.get_terminal_size(DRAWS_ON)
