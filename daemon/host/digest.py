"""What the report of a run tells that is worth a word, read from the JSON that `profd summary` writes of it.

That JSON is a documented promise, so nothing of analysis is imported for it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from profd.daemon.errors import RunUnreadable

_HARMLESS = "info"


class _Finding(msgspec.Struct, frozen=True):
    title: str
    severity: str


class _Hang(msgspec.Struct, frozen=True):
    text: str


class _PostMortem(msgspec.Struct, frozen=True):
    code: int | None = None
    signal: str | None = None
    out_of_memory: str | None = None


class Digest(msgspec.Struct, frozen=True):
    """The part of a summary that tells of incidents."""

    samples: int = 0
    findings: tuple[_Finding, ...] = ()
    hangs: tuple[_Hang, ...] = ()
    post_mortem: _PostMortem | None = None

    @property
    def incident(self) -> str:
        """The death, hangs and findings of a run in one line; empty where there are none."""
        told = [_death(self.post_mortem)] if self.post_mortem else []
        told += [hang.text for hang in self.hangs]
        told += [finding.title for finding in self.findings if finding.severity != _HARMLESS]
        return "; ".join(told)


def read_digest(summary: Path) -> Digest:
    """Return what a summary tells; raises RunUnreadable where it is none."""
    try:
        return msgspec.json.decode(summary.read_bytes(), type=Digest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunUnreadable(f"{summary} is no summary ({error})", "see `profd summary` of the run") from error


def _death(post_mortem: _PostMortem) -> str:
    if post_mortem.out_of_memory:
        return f"died: {post_mortem.out_of_memory}"
    return f"died: {post_mortem.signal or f'exit code {post_mortem.code}'}"
