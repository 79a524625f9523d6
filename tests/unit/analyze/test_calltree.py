"""The call tree of a profile: it adds up, whatever the depth of the stacks."""

from __future__ import annotations

import sys
from pathlib import Path

from support import synthetic

from profd.daemon.analyze.calltree import call_tree
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import MAIN_THREADS, Selection
from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.daemon.store.records import Frame

SECONDS = 4


def test_a_call_tree_adds_up_from_the_leaves_to_the_root(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "a.profd", seconds=SECONDS)) as reader:
        tree = call_tree(reader, take_profile(reader, MAIN_THREADS), PhaseIndex(reader))

        for node in tree.walk():
            assert node.total_ns == node.own_ns + sum(child.total_ns for child in node.children)
            assert node.total_ns == sum(node.phases_ns.values())
        assert (tree.samples, tree.total_ns) == (SECONDS * synthetic.RATE_HZ, SECONDS * SECOND_NS)
        (module,) = tree.children
        (main,) = module.children
        assert [node.title for node in (tree, module, main)] == ["all", "<module>", "main"]
        assert [node.title for node in main.children] == 7 * ["train_epoch"]


def test_stacks_deeper_than_functions_may_nest_are_walked(tmp_path: Path) -> None:
    depth = 2 * sys.getrecursionlimit()
    stack = tuple(Frame(f"function_{number}", synthetic.TRAIN, 1) for number in range(depth))
    record = synthetic.recording(
        synthetic.MAIN, synthetic.STARTED_NS, [(1, "MainThread", True, [(stack, 1000)])]
    )

    with RunReader(
        synthetic.write_records(tmp_path / "a.profd", [synthetic.main_process(), record])
    ) as reader:
        tree = call_tree(reader, take_profile(reader, Selection()), PhaseIndex(reader))

        assert len(list(tree.walk())) == depth + 1
