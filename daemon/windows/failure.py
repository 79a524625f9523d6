"""Why there is no window of a process: the error that all ways of taking one raise."""

from __future__ import annotations

from profd.daemon.errors import ProfdError


class WindowFailed(ProfdError):
    """A process was asked for a window and gave none."""
