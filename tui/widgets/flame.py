"""The flame view: an icicle of the stacks, the root on top.

It can be walked through, zoomed, searched and inverted.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from textual import events
from textual.actions import SkipAction

from profd.daemon.analyze import phases
from profd.daemon.analyze.calltree import MIXED, Node
from profd.daemon.render.plaintext import fit, visible, width
from profd.daemon.units import percent
from profd.tui.cells import Run, cut_name, cut_path
from profd.tui.colors import PhaseLook
from profd.tui.icicle import Block, FlameCursor, FlameSearch, Row
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.hot import without_samples
from profd.tui.widgets.linewidget import LineWidget
from profd.tui.widgets.table import CursorMoved

_DETAIL_LINES = 2
_KEYS = " arrows move · ⏎ zooms · ⌫ back · i inverts · f folds · c colors · / searches"


BY_PHASE, BY_GPU = "colors by phase", "colors by idle GPU"
_IDLE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class FlameView(LineWidget):
    """The icicle, and below it the details of the frame under the cursor."""

    can_focus = True
    BINDINGS = [
        ("up,k", "move('climb', -1)"),
        ("down,j", "move('climb', 1)"),
        ("left,h", "step(-1)"),
        ("right", "step(1)"),
        ("enter", "move('zoom')"),
        ("backspace", "move('back')"),
        ("i", "move('invert')"),
        ("f", "move('fold')"),
        ("c", "recolor"),
        ("escape", "release"),
    ]
    coloring = BY_PHASE

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.cursor = FlameCursor()
        self.search = FlameSearch("")
        self._found_share = 0.0
        self._empty_text = ""

    def show(self, snapshot: Snapshot) -> None:
        self._empty_text = without_samples(snapshot, snapshot.scope_name)

    def show_tree(self, tree: Node) -> None:
        """Draw another tree; zoom and cursor stay in place, as far as it has their frames."""
        self.cursor.show(tree)
        self._search_anew()

    def filter(self, needle: str) -> None:
        self.search = FlameSearch(needle)
        self._search_anew()

    def action_move(self, how: str, *steps: int) -> None:
        """Move the cursor, or change what is shown around it, by a method of ``FlameCursor``."""
        getattr(self.cursor, how)(*steps)
        self._moved()

    def action_step(self, blocks: int) -> None:
        if not self.cursor.is_set:
            raise SkipAction  # the key then moves through time
        self.cursor.step(blocks)
        self._moved()

    def action_recolor(self) -> None:
        has_gpu = self.cursor.tree is not None and self.cursor.tree.gpu_idle is not None
        self.coloring = BY_GPU if has_gpu and self.coloring == BY_PHASE else BY_PHASE
        self.refresh()

    def action_release(self) -> None:
        if not self.cursor.is_set or self.search.text:
            raise SkipAction  # the screen then handles escape, which ends a search first
        self.cursor.release()
        self._moved()

    def on_resize(self) -> None:
        self.cursor.fit(self.size.width, self._picture_lines)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor under the mouse; a click on the frame under the cursor zooms."""
        row = (
            self.cursor.row(int(event.y) + self.cursor.first_row)
            if event.y < self._picture_lines
            else []
        )
        for block in row:
            if block.left <= event.x < block.right:
                self.cursor.zoom() if block is self.cursor.block else self.cursor.go_to(block)
                self._moved()
                break

    def draw(self, y: int, width: int) -> Sequence[Run]:
        if not self.cursor.rows:
            text = (
                f"  {self._empty_text}"
                if self.cursor.tree is not None
                else "  Adding up the stacks…"
            )
            return [(text if y == 1 else "", "dim")]
        if y < self._picture_lines:
            return self._blocks(self.cursor.row(y + self.cursor.first_row))
        if y == self._picture_lines:
            return self._about(self.cursor.block.node) if self.cursor.block else self._legend()
        if not self.search.text:
            return [(_KEYS, "faint")]
        found = f" of the time has “{visible(self.search.text)}” in its stack"
        return [(f" {percent(self._found_share, 1)}", "bright"), found]

    @property
    def _picture_lines(self) -> int:
        return (
            self.size.height - _DETAIL_LINES
            if self.size.height > 2 * _DETAIL_LINES
            else self.size.height
        )

    def _moved(self) -> None:
        self.refresh()
        self.post_message(CursorMoved())

    def _search_anew(self) -> None:
        self._found_share = (
            self.search.share(self.cursor.tree) if self.search.text and self.cursor.tree else 0.0
        )
        self.refresh()

    def _blocks(self, row: Row) -> list[Run]:
        runs: list[Run] = []
        at, current = 0, self.cursor.block
        for block in row:
            if block.left > at:
                runs.append(" " * (block.left - at))
            look, is_found = self._look(block.node), self.search.finds(block.node)
            if block is current:
                style = self.style_of("bright") + Style(reverse=True)
            elif self.search.text:
                style = look.label + Style(bold=is_found, underline=is_found, dim=not is_found)
            else:
                style = look.label
            # Add a letter if the color says nothing.
            letter = "" if look.color else f"{look.letter} "
            runs.append((_label(block, letter), style))
            at = block.right
        return runs

    def _look(self, node: Node) -> PhaseLook:
        if self.coloring == BY_GPU and node.gpu_idle is not None:
            return self.idle_look(node.gpu_idle)
        is_known = self.coloring == BY_PHASE and node.phase != MIXED
        return self.phase_looks[node.phase if is_known else phases.OTHER]

    def _about(self, node: Node) -> list[Run]:
        whole_ns = (self.cursor.tree.total_ns if self.cursor.tree else 0.0) or 1.0
        shares = (
            f"   self {percent(node.own_ns / whole_ns, 1)}   total "
            f"{percent(node.total_ns / whole_ns, 1)}"
        )
        if node.gpu_idle is not None:
            shares += f"   GPU {percent(1 - node.gpu_idle)}"
        return [
            (f" {visible(node.title)}", "bright"),
            (f"  {visible(node.place)}", "accent"),
            shares,
            (f"   {visible((node.frame and node.frame.source) or '')}", "dim"),
        ]

    def _legend(self) -> list[Run]:
        scale: list[Run] = []
        if self.coloring == BY_GPU:
            looks = [self.idle_look(share) for share in _IDLE_SHARES]
            scale.append(("   busy ", "dim"))
            scale += [(f" {look.letter} ", look.label) for look in looks]
            scale.append((" idle", "dim"))
        states = {"leaves on top": self.cursor.is_inverted, "folded": self.cursor.is_folded}
        # The scale comes first: in a narrow view the end is cut, and without the scale the colors
        # say nothing.
        about = (f"   {' · '.join(word for word, is_so in states.items() if is_so)}", "dim")
        return [(f" {self.coloring}", "dim"), *scale, about]


def _label(block: Block, letter: str) -> str:
    """Return the text of a block: its edge, the letter of its color, its name and place."""
    edge = "▏" if block.left else ""
    room = block.width - len(edge) - len(letter)
    if room < 3:  # a fragment of a name says nothing
        return fit(f"{edge}{letter}".strip()[-block.width :], block.width)
    text = cut_name(visible(block.node.title), room)
    left = room - width(text) - 2
    place = f"  {cut_path(visible(block.node.place), left)}" if left >= 16 else ""
    return fit(f"{edge}{letter}{text}{place}", block.width)
