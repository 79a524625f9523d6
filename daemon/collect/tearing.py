"""Tells torn stacks from whole ones: pure functions on the stacks of one thread.

py-spy reads a running interpreter without stopping it, so now and then the frames of two moments are glued together.
Such a stack cannot begin where threads begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from profd.daemon.store.records import Frame

Stack = tuple[Frame, ...]

# Where CPython starts a thread's Python code: scripts, `-m` and interactive code in the main thread, threading's
# bootstrap elsewhere (with its class before it from Python 3.11 on).
ROOT_FUNCTIONS = frozenset({"<module>", "_run_module_as_main", "_bootstrap", "Thread._bootstrap"})


def valid_roots(stacks: Iterable[tuple[Stack, int]]) -> frozenset[str]:
    """Return the functions that the stacks of one thread may begin with, from its stacks and their samples.

    A thread that a C library started calls into Python wherever it likes: where no stack begins at a known root, the
    one that most samples begin at is taken for the root.
    """
    roots: Counter[str] = Counter()
    for stack, samples in stacks:
        if stack:
            roots[stack[0].function] += samples
    known = ROOT_FUNCTIONS & roots.keys()
    if known or not roots:
        return frozenset(known)
    return frozenset({roots.most_common(1)[0][0]})


def is_torn(stack: Stack, roots: frozenset[str]) -> bool:
    """Say whether a stack is impossible: it has no frames, or begins where no thread begins."""
    return not stack or stack[0].function not in roots
