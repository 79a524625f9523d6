"""Which stacks cannot be."""

from __future__ import annotations

from profd.daemon.collect.tearing import is_torn, valid_roots
from profd.daemon.store.records import Frame


def frames(*functions: str) -> tuple[Frame, ...]:
    return tuple(Frame(function, "x.py", 1) for function in functions)


SCRIPT = frames("<module>", "main", "train")
THREAD = frames("Thread._bootstrap", "Thread.run", "loop")
GLUED = frames("Condition.notify", "Queue.put")


def test_a_script_begins_at_its_module() -> None:
    roots = valid_roots([(SCRIPT, 1), (GLUED, 99)])
    assert not is_torn(SCRIPT, roots)
    assert is_torn(GLUED, roots)


def test_every_known_beginning_that_occurs_is_valid() -> None:
    run = frames("_run_module_as_main", "_run_code", "main")
    roots = valid_roots([(run, 5), (SCRIPT, 5), (GLUED, 1)])
    assert roots == {"_run_module_as_main", "<module>"}


def test_a_known_beginning_that_does_not_occur_is_torn_too() -> None:
    roots = valid_roots([(THREAD, 50)])
    assert not is_torn(THREAD, roots)
    assert is_torn(SCRIPT, roots)


def test_a_thread_of_a_library_begins_where_most_of_its_samples_do() -> None:
    callback = frames("hook", "log")
    roots = valid_roots([(callback, 3), (frames("hook"), 3), (GLUED, 5)])
    assert roots == {"hook"}
    assert is_torn(GLUED, roots)


def test_no_frames_are_no_stack() -> None:
    assert valid_roots([]) == frozenset()
    assert valid_roots([((), 7)]) == frozenset()
    assert is_torn((), valid_roots([(SCRIPT, 1), ((), 50)]))
    assert is_torn(SCRIPT, frozenset())
