"""How a target died, in one sentence, and as the lines below it."""

from __future__ import annotations

from collections.abc import Iterator

from profd.daemon.analyze.postmortem import LastPlace, PostMortem
from profd.daemon.render.cells import wrapped
from profd.daemon.render.visible import visible
from profd.daemon.units import size

_OUTPUT_LINES = 8


def post_mortem_sentence(post_mortem: PostMortem) -> str:
    """Return the sentence: what ended the target, where it stood last, with how much memory, and its last error."""
    facts = [post_mortem.cause]
    if post_mortem.last:
        facts.append(f"last seen {_last(post_mortem.last[0])}")
    if post_mortem.rss_bytes is not None:
        facts.append(f"with {size(post_mortem.rss_bytes)} resident")
    text = ", ".join(facts)
    return visible(f"{text}; {post_mortem.error}" if post_mortem.error else text)


def post_mortem_lines(post_mortem: PostMortem | None, columns: int) -> Iterator[str]:
    """Yield the sentence, who else died, and the last lines of output; nothing where the target did not die."""
    if post_mortem is None:
        return
    yield from wrapped(post_mortem_sentence(post_mortem), columns, "  ")
    if post_mortem.others:
        yield f"  ended shortly before: {', '.join(f'pid {pid}' for pid in post_mortem.others)}"
    for place in post_mortem.last[1:]:
        yield visible(f"  last seen {_last(place)}")
    for line in post_mortem.output[-_OUTPUT_LINES:]:
        yield visible(f"  │ {line}")


def _last(place: LastPlace) -> str:
    who = f"rank {place.rank} " if place.rank is not None else ""
    code = f": {place.source}" if place.source else ""
    return f"{who}in {place.place}{code}"
