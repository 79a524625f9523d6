"""A flame graph as a still picture: SVG without scripts.

Any browser, editor or pull request shows it. As in the report, the root is at the top and time runs
sideways: a frame is as wide as its share, and has the color of the phase that takes most of its
time. The report serves to explore a run, this picture to show what was found.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from profd.daemon.analyze.calltree import Node, call_tree
from profd.daemon.analyze.phases import STARTUP, PhaseIndex, phase_named
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings.catalog import shows_imports, whole_findings
from profd.daemon.naming import script
from profd.daemon.render.plaintext import cut, visible
from profd.daemon.store.reader import RunReader
from profd.daemon.units import percent

WIDTH, MARGIN, ROW, HEAD = 1200, 10, 17, 44
_STYLE = "text{font:11px monospace;fill:#14171a}rect{stroke:#fff;stroke-width:.5}"
_STYLE += ".l{fill-opacity:.55}.w{fill:#fff}.n{font-size:13px}"


def flame_graph_svg(reader: RunReader, selection: Selection) -> bytes:
    """Return the flame graph of a selection."""
    phases = PhaseIndex(reader)
    profile = take_profile(reader, selection, phases)
    loop = [stack for stack in profile.time_ns if phases.of_stack(stack) != STARTUP]
    hides_imports = selection.phase is None and not shows_imports(whole_findings(reader))
    basis = ""
    if hides_imports and 0 < len(loop) < len(profile.time_ns):
        basis = " without startup and import"
        profile = Profile(
            {stack: profile.samples[stack] for stack in loop},
            {stack: profile.time_ns[stack] for stack in loop},
        )
    tree = call_tree(reader, profile, phases)
    drawn, deepest = [], 0
    # Pixels from the left edge and rows from the top; callers come before what they call.
    waiting = [(tree, float(MARGIN), 0)] if tree.total_ns else []
    scale = (WIDTH - 2 * MARGIN) / (tree.total_ns or 1.0)
    while waiting:
        node, left, depth = waiting.pop()
        deepest = max(deepest, depth)
        drawn.append(_drawn(node, (left, node.total_ns * scale, depth), tree.total_ns))
        for child in sorted(node.children, key=lambda child: -child.total_ns):
            if (
                child.total_ns * scale >= 0.3
            ):  # pixels: nobody sees narrower frames, and there are thousands
                waiting.append((child, left, depth + 1))
            left += child.total_ns * scale
    height, body = HEAD + MARGIN + ROW * (1 + deepest), "\n".join(drawn)
    title = _text(f"{script(reader.info.command)} · {reader.info.id}")
    basis = (
        f"{profile.total_samples:,} samples{basis}; width is time, color the phase, libraries are "
        "paler"
    )
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" '
        f'role="img">\n<style>{_STYLE}</style>\n<rect width="{WIDTH}" height="{height}" '
        'fill="#fff"/>\n'
        f'<text class="n" x="{MARGIN}" y="20">{title}</text>\n'
        f'<text x="{MARGIN}" y="36">{basis}</text>\n{body}\n</svg>\n'
    )
    return picture.encode()


def _drawn(node: Node, place: tuple[float, float, int], whole_ns: float) -> str:
    """Return a frame with its label, and all that is known of it as a tooltip.

    The label is cut to the available width.
    """
    left, width, depth = place
    frame, color = (
        node.frame,
        phase_named(node.phase).color if node.frame and node.phase else "#cccccc",
    )
    label = "all" if frame is None else f"{frame.function} ({frame.module_path}:{frame.line})"
    known = f"{label}\n{percent(node.total_ns / whole_ns, 1)}, {node.samples:,} samples"
    if frame is not None and frame.source:
        known += f"\n{frame.source}"
    top = HEAD + depth * ROW
    pale = ' class="l"' if frame is not None and frame.is_library else ""
    shape = (
        f'<rect{pale} x="{left:.2f}" y="{top}" width="{width:.2f}" height="{ROW}" fill="{color}"/>'
    )
    cells = int((width - 6) / 6.7)
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    # White is easier to read than black on a color with little luma.
    ink = ' class="w"' if not pale and 0.299 * red + 0.587 * green + 0.114 * blue < 110 else ""
    words = (
        f'<text{ink} x="{left + 3:.2f}" y="{top + 12}">{_text(label, cells)}</text>'
        if cells >= 3
        else ""
    )
    return f"<g><title>{_text(known)}</title>{shape}{words}</g>"


def _text(text: str, cells: int | None = None) -> str:
    """Return text of a run escaped for markup, cut to a number of characters."""
    lines = [visible(line) if cells is None else cut(line, cells) for line in text.split("\n")]
    return escape("\n".join(lines))
