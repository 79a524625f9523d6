"""How soon Escape is answered. Knows Textual's driver alone.

The bytes of every arrow key begin with that of Escape, so it is held back for a moment (``ESCDELAY``). Textual's driver
looks ten times a second whether that moment is over, and offers no setting for it: a tenth of a second for one key.
"""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

from textual.drivers import linux_driver

LOOKS_EVERY_S = 0.03
"""As often it is looked from now on, which takes a tenth of a percent of a core."""


class _Selector(selectors.SelectSelector):
    """Waits for no longer than that."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(LOOKS_EVERY_S if timeout is None else min(timeout, LOOKS_EVERY_S))


def answer_escape_soon() -> None:
    """Have Textual's driver look more often; no other module's selectors change."""
    offered = cast("Mapping[str, object]", vars(selectors))
    setattr(linux_driver, "selectors", SimpleNamespace(**{**offered, "SelectSelector": _Selector}))  # noqa: B010
