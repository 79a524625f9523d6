"""The flame view: an icicle of the stacks, the root on top, to be walked through, zoomed, searched and turned over."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType

from profd.daemon.analyze.phases import (
    BACKWARD,
    CHECKPOINT,
    COLLECTIVE,
    EVALUATION,
    FORWARD,
    LOGGING,
    LOSS,
    OPTIMIZER,
    OTHER,
)
from profd.daemon.render.plaintext import fit, visible
from profd.daemon.render.plaintext import width as cells_of
from profd.daemon.units import percent
from profd.tui.cells import Run, cut_name, cut_path
from profd.tui.colors import PhaseLook
from profd.tui.flametree import MIXED, Node
from profd.tui.icicle import Block, FlameSearch, FlameWalk, Row
from profd.tui.snapshot import Snapshot
from profd.tui.widgets.drawn import Lines
from profd.tui.widgets.hot import without_samples
from profd.tui.widgets.table import CursorMoved

_DETAIL_LINES = 2
_NAME_CELLS, _PLACE_CELLS = 3, 16
# Packages have no colors of their own: those of phases are told apart well, and a line below says what they mean.
_MODULE_COLORS = (FORWARD, BACKWARD, OPTIMIZER, EVALUATION, COLLECTIVE, LOSS, LOGGING, CHECKPOINT)
_KEYS = " arrows move · ⏎ zooms · ⌫ back · i inverts · f folds · c colors · / searches"


BY_PHASE, BY_MODULE, BY_GPU = "colors by phase", "colors by module", "colors by idle GPU"
_IDLE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class FlameView(Lines):
    """The icicle, and below it what is to be said of the frame under the cursor."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "climb(-1)", "to the caller", show=False),
        Binding("down,j", "climb(1)", "to what it calls", show=False),
        Binding("left,h", "walk(-1)", "to the left", show=False),
        Binding("right", "walk(1)", "to the right", show=False),
        Binding("enter", "zoom", "zoom", show=False),
        Binding("backspace", "back", "zoom back", show=False),
        Binding("i", "turn", "invert", show=False),
        Binding("f", "fold", "fold libraries", show=False),
        Binding("c", "recolor", "colors", show=False),
        Binding("escape", "release", "let the cursor go", show=False),
    ]
    coloring = BY_PHASE

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.walk = FlameWalk()
        self.search = FlameSearch("")
        self._found_share = 0.0
        self._absence = ""

    @property
    def has_cursor(self) -> bool:
        """Whether the cursor is in the picture."""
        return self.walk.has_cursor

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Keep what is to be said where there are no stacks; these are added up by themselves."""
        self._absence = without_samples(snapshot, snapshot.scope_name)

    def show(self, tree: Node) -> None:
        """Draw another tree; zoom and cursor stay where they are, as far as it has their frames."""
        self.walk.take(tree)
        self._search_anew()

    def filter(self, needle: str) -> None:
        """Mark the frames that have a text in them."""
        self.search = FlameSearch(needle)
        self._search_anew()

    def action_climb(self, rows: int) -> None:
        """Go to the caller, or to the longest of what is called."""
        self.walk.climb(rows)
        self._moved()

    def action_walk(self, blocks: int) -> None:
        """Go along the row."""
        if not self.has_cursor:
            raise SkipAction  # time is moved through then
        self.walk.walk(blocks)
        self._moved()

    def action_zoom(self) -> None:
        """Give the frame under the cursor the whole width."""
        self.walk.zoom()
        self._moved()

    def action_back(self) -> None:
        """Go back to what was shown before the last zoom."""
        self.walk.back()
        self._moved()

    def action_turn(self) -> None:
        """Show callers below what they call, or as before."""
        self.walk.turn()
        self._moved()

    def action_fold(self) -> None:
        """Show runs of library frames as one, or each of them."""
        self.walk.fold()
        self._moved()

    def action_recolor(self) -> None:
        """Color by what comes next: phase, module, and the idle GPU where there is one."""
        has_gpu = self.walk.tree is not None and self.walk.tree.gpu_idle is not None
        colorings = [BY_PHASE, BY_MODULE, *([BY_GPU] if has_gpu else [])]
        after = colorings.index(self.coloring) + 1 if self.coloring in colorings else 0
        self.coloring = colorings[after % len(colorings)]
        self.refresh()

    def action_release(self) -> None:
        """Take the cursor out of the picture."""
        if not self.has_cursor or self.search.text:
            raise SkipAction  # escape is the screen's then, which ends a search first
        self.walk.release()
        self._moved()

    def on_resize(self) -> None:
        """Lay out for the new size."""
        self.walk.fit(self.size.width, self._picture_lines)
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a click on the frame under the cursor zooms."""
        row = self.walk.row(int(event.y) + self.walk.first_row) if event.y < self._picture_lines else []
        block = next((block for block in row if block.left <= event.x < block.right), None)
        if block is None:
            return
        if block is self.walk.current:
            self.walk.zoom()
        else:
            self.walk.go_to(block)
        self._moved()

    def draw(self, y: int, width: int) -> Sequence[Run]:
        """Return a row of the icicle, or a line of what is said below it."""
        if not self.walk.rows:
            text = f"  {self._absence}" if self.walk.tree is not None else "  Adding up the stacks…"
            return [self.run(text if y == 1 else "", "dim")]
        if y >= self._picture_lines:
            return self._detail(y - self._picture_lines)
        return self._drawn_row(self.walk.row(y + self.walk.first_row))

    @property
    def _picture_lines(self) -> int:
        """The lines of the icicle; where room is short it gets all."""
        return self.size.height - _DETAIL_LINES if self.size.height > 2 * _DETAIL_LINES else self.size.height

    def _moved(self) -> None:
        self.refresh()
        self.post_message(CursorMoved())

    def _search_anew(self) -> None:
        self._found_share = self.search.share(self.walk.tree) if self.search.text and self.walk.tree else 0.0
        self.refresh()

    def _drawn_row(self, row: Row) -> list[Run]:
        runs, at, current = [], 0, self.walk.current
        for block in row:
            if block.left > at:
                runs.append(self.run(" " * (block.left - at)))
            runs.append(Run(self._label(block), self._style(block, is_current=block is current)))
            at = block.right
        return runs

    def _label(self, block: Block) -> str:
        """Return the text of a block: its edge, a letter where its color says nothing, its name and place."""
        edge = "▏" if block.left else ""
        letter = self._letter(block.node)
        room = block.width - len(edge) - len(letter)
        if room < _NAME_CELLS:  # a bit of a name tells nothing
            return fit(f"{edge}{letter}" if room >= 0 else letter.strip() or edge, block.width)
        text = cut_name(visible(block.node.title), room)
        left = room - cells_of(text) - 2
        place = f"  {cut_path(visible(block.node.place), left)}" if left >= _PLACE_CELLS else ""
        return fit(f"{edge}{letter}{text}{place}", block.width)

    def _letter(self, node: Node) -> str:
        look = self._look(node)
        return "" if look.color or self.coloring == BY_MODULE else f"{look.letter} "

    def _style(self, block: Block, *, is_current: bool) -> Style:
        look = self._look(block.node)
        if is_current:
            return self.ink("bright") + Style(reverse=True)
        is_found = self.search.finds(block.node)
        marks = Style(bold=is_found, underline=is_found, dim=not is_found) if self.search.text else Style()
        return look.label + marks

    def _look(self, node: Node) -> PhaseLook:
        if self.coloring == BY_PHASE:
            return self.phase_look(node.phase if node.phase != MIXED else OTHER)
        if self.coloring == BY_GPU and node.gpu_idle is not None:
            return self.idle_look(node.gpu_idle)
        if node.frame is None or self.coloring == BY_GPU:
            return self.phase_look(OTHER)
        # A color that depends on the name alone: the same in every run, whichever packages come and go.
        return self.phase_look(_MODULE_COLORS[zlib.crc32(node.package.encode()) % len(_MODULE_COLORS)])

    def _detail(self, line: int) -> list[Run]:
        if line:
            return self._found() if self.search.text else [self.run(_KEYS, "faint")]
        current = self.walk.current
        return self._about(current.node) if current else self._legend()

    def _about(self, node: Node) -> list[Run]:
        """Return what is known of a frame."""
        whole_ns = (self.walk.tree.total_ns if self.walk.tree else 0.0) or 1.0
        shares = f"   self {percent(node.own_ns / whole_ns, 1)}   total {percent(node.total_ns / whole_ns, 1)}"
        if node.gpu_idle is not None:
            shares += f"   GPU {percent(1 - node.gpu_idle)}"
        runs = [self.run(f" {visible(node.title)}", "bright"), self.run(f"  {visible(node.place)}", "accent")]
        source = node.frame.source if node.frame is not None else None
        return [*runs, self.run(shares), self.run(f"   {visible(source)}" if source else "", "dim")]

    def _legend(self) -> list[Run]:
        scale = self._idle_scale() if self.coloring == BY_GPU else []
        words = ["leaves on top"] if self.walk.is_inverted else []
        words += ["folded"] if self.walk.is_folded else []
        # The scale comes first: where room is short the end is cut, and without it the colors say nothing.
        about = self.run(f"   {' · '.join(words)}" if words else "", "dim")
        return [self.run(f" {self.coloring}", "dim"), *scale, about]

    def _idle_scale(self) -> list[Run]:
        """Return what the colors of the idle GPU mean."""
        looks = [self.idle_look(share) for share in _IDLE_SHARES]
        scale = [Run(f" {look.letter} ", look.label) for look in looks]
        return [self.run("   busy ", "dim"), *scale, self.run(" idle", "dim")]

    def _found(self) -> list[Run]:
        said = f" of the time has “{visible(self.search.text)}” in its stack"
        return [self.run(f" {percent(self._found_share, 1)}", "bright"), self.run(said)]
