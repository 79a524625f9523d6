"""Phases of the main thread. CONTRACT STUB, to be replaced."""

from __future__ import annotations

from profd.daemon.store.reader import RunReader


class PhaseIndex:
    """The phase of every stack of a run, decided once a stack."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def of_stack(self, stack: int) -> str:
        """Return the name of the phase of a stack."""
        return "other"
