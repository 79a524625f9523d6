"""The flame view's trees and their layout, on made-up trees of any form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.present import there

from profd.daemon.analyze.calltree import Node
from profd.daemon.store.rows import FrameRow
from profd.tui.flametree import folded, inverted
from profd.tui.icicle import Block, FlameCursor, FlameSearch, lay_out

Stack = tuple[int, ...]
LIBRARY_FROM = 5

stacks = some.dictionaries(
    some.lists(some.integers(1, 9), min_size=1, max_size=12).map(tuple),
    some.integers(1, 1000),
    min_size=1,
    max_size=30,
)


def frame(number: int) -> FrameRow:
    is_library = number >= LIBRARY_FROM
    path = f"torch/part{number}.py" if is_library else f"train{number}.py"
    return FrameRow(number, f"function_{number}", f"/{path}", path, 1, is_library, None)


def tree_of(profile: dict[Stack, int]) -> Node:
    root = Node(0, None)
    for stack, time_ns in profile.items():
        path = [root]
        for number in stack:
            below = path[-1].child(number)
            if below is None:
                below = Node(number, frame(number))
                path[-1].add_child(below)
            path.append(below)
        for node in path:
            node.total_ns += time_ns
            node.phases_ns["forward"] += time_ns
        path[-1].own_ns += time_ns
    for node in root.walk():
        node.children.sort(key=lambda child: (child.frame.id if child.frame else 0, child.hidden))
    return root


def blocks(top: Node, width: int, rows: int = 50) -> Iterable[Block]:
    return [block for row in lay_out(top, width, rows) for block in row]


@given(stacks, some.integers(1, 200))
def test_what_is_called_lies_within_its_caller_and_beside_its_siblings(
    profile: dict[Stack, int], width: int
) -> None:
    tree = tree_of(profile)
    for block in blocks(tree, width):  # a width is the share of time to the cell
        assert abs(block.width - width * block.node.total_ns / tree.total_ns) <= 1
    for form in (tree, folded(tree_of(profile)), inverted(tree_of(profile))):
        for row in lay_out(form, width, 50):
            assert all(block.width > 0 for block in row)
            assert all(left.right <= right.left for left, right in itertools.pairwise(row))
            for block in row:
                above = block.above
                assert above is None or above.left <= block.left < block.right <= above.right


@given(stacks, stacks)
def test_more_time_changes_no_order(profile: dict[Stack, int], later: dict[Stack, int]) -> None:
    before, after = tree_of(profile), tree_of({**profile, **later})
    orders = {
        block.path: [child.key for child in block.node.children] for block in blocks(after, 10_000)
    }
    for block in blocks(before, 10_000):
        known = {child.key for child in block.node.children}
        assert [key for key in orders.get(block.path, []) if key in known] in (
            [],
            [c.key for c in block.node.children],
        )


@given(stacks)
def test_every_form_has_all_of_the_time(profile: dict[Stack, int]) -> None:
    tree = tree_of(profile)
    for form in (folded(tree), inverted(tree), inverted(folded(tree))):
        assert form.total_ns == sum(profile.values())
        assert sum(node.own_ns for node in form.walk()) == sum(profile.values())
        for node in form.walk():
            assert sum(child.total_ns for child in node.children) <= node.total_ns
            assert sum(node.phases_ns.values()) == pytest.approx(node.total_ns)
    # Folding leaves no library frame below another, and keeps the user's.
    assert not any(
        node.is_library and child.is_library
        for node in folded(tree).walk()
        for child in node.children
    )
    own = {node.key: 0.0 for node in tree.walk() if not node.is_library}
    for whole, sign in ((tree, 1), (folded(tree), -1)):
        for node in whole.walk():
            if not node.is_library:
                own[node.key] += sign * node.own_ns
    assert set(own.values()) <= {0.0}


def test_a_folded_run_says_whose_and_how_many_and_leaves_may_be_on_top() -> None:
    form = inverted(tree_of({(1, 2, 3): 60, (1, 3): 30, (1, 2): 10}))
    assert {child.key: (child.total_ns, child.own_ns) for child in form.children} == {
        3: (90, 90),
        2: (10, 10),
    }
    (three,) = [child for child in form.children if child.key == 3]
    assert {child.key: child.total_ns for child in three.children} == {1: 30, 2: 60}
    (user,) = folded(tree_of({(1, 5, 6, 2): 10, (1, 5, 7): 20, (1, 6): 5})).children
    (library,) = user.children
    assert (library.title, library.total_ns, library.own_ns) == ("torch · 3 frames", 35, 25)
    assert [child.key for child in library.children] == [2]
    assert FlameSearch("").share(tree_of({(1,): 1})) == 0


@given(stacks, some.integers(1, 9))
def test_the_share_that_a_search_finds_is_that_of_stacks_with_it(
    profile: dict[Stack, int], number: int
) -> None:
    with_it = sum(time_ns for stack, time_ns in profile.items() if number in stack)
    share = FlameSearch(f"FUNCTION_{number} ").share(tree_of(profile))
    assert share == pytest.approx(with_it / sum(profile.values()))


class TestCursor:
    def cursor(self, profile: dict[Stack, int], lines: int = 20) -> FlameCursor:
        cursor = FlameCursor()
        cursor.fit(100, lines)
        cursor.show(tree_of(profile))
        return cursor

    def at(self, cursor: FlameCursor) -> tuple[object, ...]:
        return there(cursor.block).path

    def test_down_goes_to_what_takes_the_longest_and_along_the_row_to_its_siblings(self) -> None:
        cursor = self.cursor({(1, 2): 30, (1, 3): 60, (1, 4): 10})
        for _ in range(3):
            cursor.climb(1)
        assert self.at(cursor) == (1, 3)
        cursor.step(1)
        assert self.at(cursor) == (1, 4)
        cursor.step(1)
        assert self.at(cursor) == (1, 4)
        cursor.climb(-1)
        assert self.at(cursor) == (1,)

    def test_the_place_is_kept_while_the_tree_grows_and_given_up_where_it_is_gone(self) -> None:
        cursor = self.cursor({(1, 2): 30, (1, 3): 70})
        cursor.climb(1)
        cursor.go_to(cursor.row(2)[0])
        cursor.show(tree_of({(1, 2): 30, (1, 3): 700, (4,): 5}))
        assert self.at(cursor) == (1, 2)
        cursor.zoom()
        cursor.show(tree_of({(1, 3): 700}))
        assert cursor.zoomed is None
        assert not cursor.is_set
        # What is too narrow for a cell gives the cursor to its caller.
        cursor = self.cursor({(1, 2): 30, (1, 3): 70})
        cursor.climb(1)
        cursor.go_to(cursor.row(2)[0])
        cursor.show(tree_of({(1, 2): 30, (1, 3): 700_000}))
        assert self.at(cursor) == (1,)

    def test_the_picture_moves_along_with_the_cursor(self) -> None:
        cursor = self.cursor({tuple(1 + depth % 9 for depth in range(200)): 10}, lines=10)
        for _ in range(150):
            cursor.climb(1)
        assert (
            len(list(lay_out(tree_of({tuple(range(1, 9)): 10}), 100, 3))) == 3
        )  # only what is seen is laid out
        assert len(self.at(cursor)) == 149
        assert cursor.first_row == 140
        cursor.release()
        assert cursor.first_row == 0
