"""A flame graph as a still picture: SVG that any browser, editor or pull request shows, with nothing in it that runs.

Like that of the report, the root is on top and time goes sideways: a frame is as wide as its share, and has the color
of the phase that most of its time belongs to. The report is for looking around; this shows what was found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

import msgspec

from profd.daemon.analyze.phases import PhaseIndex, phase_named
from profd.daemon.analyze.profile import CallNode, Profile, call_tree, take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.naming import script
from profd.daemon.render.plaintext import cut, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.units import percent

WIDTH, MARGIN, ROW, HEAD = 1200, 10, 17, 44
NARROWEST = 0.3
"""Frames narrower than this many pixels are left out: nobody sees them, and there are thousands."""
MIXED = "#cccccc"
"""A frame of which no phase has half."""
_CHARACTER = 6.7
_STYLE = (
    "text{font:11px monospace;fill:#14171a}rect{stroke:#fff;stroke-width:.5}"
    ".l{fill-opacity:.55}.w{fill:#fff}.n{font-size:13px}"
)


class Box(msgspec.Struct, frozen=True):
    """A frame where it is drawn: pixels from the left edge and rows from the top."""

    node: CallNode
    left: float
    width: float
    depth: int


def flame_graph_svg(reader: RunReader, selection: Selection) -> bytes:
    """Return the flame graph of a selection as an SVG file."""
    phases = PhaseIndex(reader)
    profile = take_profile(reader, selection, phases)
    tree = call_tree(reader, profile)
    boxes = list(_boxes(tree))
    colors = _Colors(reader, profile, tree, phases)
    height = HEAD + MARGIN + ROW * (1 + max((box.depth for box in boxes), default=0))
    body = "\n".join(_drawn(box, reader, colors, tree.total_ns) for box in boxes)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img">\n<style>{_STYLE}</style>\n<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n'
        f"{_head(reader, profile)}\n{body}\n</svg>\n"
    )
    return picture.encode()


def _head(reader: RunReader, profile: Profile) -> str:
    """Return the line on top: what ran, and on how much the picture rests."""
    title = _text(f"{script(reader.info.command)} · {reader.info.id}")
    basis = f"{profile.total_samples:,} samples"
    return (
        f'<text class="n" x="{MARGIN}" y="20">{title}</text>\n'
        f'<text x="{MARGIN}" y="36">{basis}; width is time, color the phase, libraries are paler</text>'
    )


def _boxes(tree: CallNode) -> Iterator[Box]:
    """Yield the frames that can be seen, callers before what they call."""
    if not tree.total_ns:
        return
    scale = (WIDTH - 2 * MARGIN) / tree.total_ns
    waiting = [Box(tree, MARGIN, WIDTH - 2 * MARGIN, 0)]
    while waiting:
        box = waiting.pop()
        yield box
        left = box.left
        for child in sorted(box.node.children.values(), key=lambda node: -node.total_ns):
            width = child.total_ns * scale
            if width >= NARROWEST:
                waiting.append(Box(child, left, width, box.depth + 1))
            left += width


def _drawn(box: Box, reader: RunReader, colors: _Colors, whole_ns: float) -> str:
    """Return a frame with its label, as far as there is room, and all that is known of it as a tooltip."""
    frame = reader.frames.get(box.node.frame)
    label = "all" if frame is None else f"{frame.function} ({frame.module_path}:{frame.line})"
    top = HEAD + box.depth * ROW
    pale = ' class="l"' if frame is not None and frame.is_library else ""
    known = f"{label}\n{percent(box.node.total_ns / whole_ns, 1)}, {box.node.samples:,} samples"
    if frame is not None and frame.source:
        known += f"\n{frame.source}"
    shape = (
        f'<rect{pale} x="{box.left:.2f}" y="{top}" width="{box.width:.2f}" height="{ROW}" '
        f'fill="{colors.of_node(box.node)}"/>'
    )
    cells = int((box.width - 6) / _CHARACTER)
    ink = ' class="w"' if not pale and _is_dark(colors.of_node(box.node)) else ""
    words = f'<text{ink} x="{box.left + 3:.2f}" y="{top + 12}">{_text(label, cells)}</text>' if cells >= 3 else ""
    return f"<g><title>{_text(known)}</title>{shape}{words}</g>"


def _is_dark(color: str) -> bool:
    """Say whether white stands out more from a color than black, by its luma."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 110


def _text(text: str, cells: int | None = None) -> str:
    """Return text of a run as it may stand in markup, cut to so many characters."""
    lines = [visible(line) if cells is None else cut(line, cells) for line in text.split("\n")]
    return escape("\n".join(lines))


class _Colors:
    """The color of each node: of the phase that has at least half of its time."""

    def __init__(self, reader: RunReader, profile: Profile, tree: CallNode, phases: PhaseIndex) -> None:
        self._spent_ns: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for stack, time_ns in profile.time_ns.items():
            node, phase = tree, phases.of_stack(stack)
            for frame in reader.frames_of(stack):
                node = node.children[frame.id]
                self._spent_ns[id(node)][phase] += time_ns

    def of_node(self, node: CallNode) -> str:
        spent_ns: Mapping[str, float] = self._spent_ns.get(id(node), {})
        phase = max(spent_ns, key=lambda name: spent_ns[name], default=None)
        if phase is None or spent_ns[phase] < node.total_ns / 2:
            return MIXED
        return phase_named(phase).color
