"""What may happen to profd's processes around a script, one after the other, and what has to hold
of each such case.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import NamedTuple

from profd.daemon.paths import list_runs
from profd.daemon.store.reader import RunReader
from support.faultscenes import EXIT_CODE, Scene, steps_in

Fault = tuple[str, str]
"""The process that it hits, and what happens."""

WAYS: dict[str, Callable[[Scene], None]] = {
    "run": Scene.launch_with_dashboard,
    "headless": Scene.launch_headless,
    "attach": Scene.attach,
    "attach-dashboard": Scene.attach_with_dashboard,
}
VICTIMS = {
    "run": ("launcher", "session", "dashboard"),
    "headless": ("launcher", "session"),
    "attach": ("launcher", "session"),
    "attach-dashboard": ("dashboard", "session"),
}
SIGNALS = ("SIGSTOP", "SIGKILL", "SIGTERM", "SIGHUP")
_WITHOUT_A_WORD = ("SIGSTOP", "SIGKILL")
"""What a process learns nothing of."""
CLOSED = ("terminal", "closed")
_MUTE = {("launcher", "SIGSTOP"), ("launcher", "SIGKILL"), ("dashboard", "SIGSTOP")}
"""After which the launcher passes nothing on."""


class Case(NamedTuple):
    """A way to profile, and what happens."""

    way: str
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return "-".join([self.way, *(f"{victim}.{fault}" for victim, fault in self.faults)])


def all_cases() -> Iterator[Case]:
    """Yield each fault of each process, all ordered pairs of those, and all orders of stops and
    kills of three.
    """
    for way, victims in VICTIMS.items():
        single = list(product(victims, SIGNALS))
        yield from (Case(way, (fault,)) for fault in [*single, CLOSED])
        yield from (Case(way, pair) for pair in permutations(single, 2) if pair[0][0] != pair[1][0])
        yield from (Case(way, (fault, CLOSED)) for fault in single)
        yield from (Case(way, (CLOSED, fault)) for fault in single)
    yield from (Case("run", (("relay", fault),)) for fault in SIGNALS)
    for order, faults in product(permutations(VICTIMS["run"]), product(SIGNALS[:2], repeat=3)):
        yield Case("run", tuple(zip(order, faults, strict=True)))


def chosen_cases() -> Iterator[Case]:
    """Yield each single fault where it differs in kind from that of another way, each first of
    several kills and of stops and kills, and a terminal that is closed after each of those.
    """
    for way, victims in VICTIMS.items():
        single = [
            (victim, fault)
            for victim, fault in product(victims, SIGNALS)
            if way == "run" or victim != "session" or fault in _WITHOUT_A_WORD
            if way != "attach-dashboard" or victim != "session"
        ]
        yield from (Case(way, (fault,)) for fault in [*single, CLOSED])
    for fault in _WITHOUT_A_WORD:
        yield Case("run", (("relay", fault),))
        yield Case("run", (("launcher", fault), CLOSED))
    for order in [VICTIMS["run"][at:] + VICTIMS["run"][:at] for at in range(3)]:
        yield Case("run", tuple((victim, "SIGKILL") for victim in order))
        yield Case("run", tuple(zip(order, ("SIGSTOP", "SIGKILL", "SIGSTOP"), strict=True)))
    for way in ("headless", "attach"):
        yield Case(way, tuple((victim, "SIGKILL") for victim in VICTIMS[way]))


def play(scene: Scene, case: Case) -> None:
    """Let a case happen.

    Raises AssertionError where the script is touched, or anything of profd's is left.
    """
    WAYS[case.way](scene)
    scene.goes_on()
    for number, (victim, fault) in enumerate(case.faults):
        if (victim, fault) == (
            "relay",
            "SIGKILL",
        ):  # what it has read and the session has no room for is lost with it
            scene.until(lambda: _kept() == _made(scene), "the output to be kept")
        scene.strike(victim, fault)
        scene.goes_on()
        _expect_signal(scene, case, number)
    scene.end_script()
    scene.leave()
    _judge(scene, case)


def _expect_signal(scene: Scene, case: Case, number: int) -> None:
    """Wait until the script was given what was meant for it: a signal to its launcher, or the
    terminal's hang-up.
    """
    if case.way not in ("run", "headless") or _MUTE & set(case.faults[:number]):
        return
    victim, fault = case.faults[number]
    if victim == "launcher" and fault in ("SIGTERM", "SIGHUP"):
        scene.until(lambda: scene.page.signals(getattr(signal, fault)), "the signal")
    if fault == "closed":
        scene.until(lambda: scene.page.signals(signal.SIGHUP), "the hang-up")


def _judge(scene: Scene, case: Case) -> None:
    """Compare output, signals and exit code with what they have to be."""
    if case.way in ("run", "headless") and CLOSED not in case.faults:
        for name in ("SIGTERM", "SIGHUP"):
            most = ("launcher", name) in case.faults
            assert scene.page.signals(getattr(signal, name)) <= most, (
                f"{name} reached the script twice"
            )
        if ("launcher", "SIGKILL") not in case.faults:
            assert scene.exit_code() == EXIT_CODE
    made = _made(scene)
    if case.way != "run":
        assert steps_in(scene.output.read_bytes()) == made
        return
    shown = steps_in(scene.shown)
    assert not shown or shown == list(range(shown[0], shown[-1] + 1)), "what is shown has a gap"
    if all(victim != "session" for victim, _ in case.faults):
        with RunReader(list_runs()[0]) as reader:
            assert (reader.info.state, reader.info.why_ended) == ("ended", "target-exited")
            if (
                "launcher",
                "SIGKILL",
            ) in case.faults:  # no process is left that learns of the script's end
                assert reader.info.exit_code == EXIT_CODE
            kept = b"".join(part.data for part in reader.output())
        assert steps_in(kept) == made, "what is kept has a gap"
        assert b"the end" in kept


def _made(scene: Scene) -> list[int]:
    """Return the steps that the script has printed."""
    return list(range(1, scene.page.steps + 1))


def _kept() -> list[int]:
    """Return the steps that the run file has."""
    with RunReader(list_runs()[0]) as reader:
        return steps_in(b"".join(part.data for part in reader.output()))
