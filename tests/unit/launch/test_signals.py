"""Which of the signals that a launcher takes the script still has to be given, by where they come
from.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import product

import pytest
from support.waiting import until

from profd.daemon import processes
from profd.daemon.launch.signals import STOPPING, TAKEN, Aim, Reached, ScriptStanding, await_sender

SI_KERNEL = 128
"""The si_code of a signal that the kernel itself sent."""

SCRIPT, STRANGER = 100, 200
BESIDE = ScriptStanding(SCRIPT, in_one_group=True)
LEADER = ScriptStanding(SCRIPT, in_one_group=True, leads_session=True)
LEADING = ScriptStanding(SCRIPT, in_one_group=False)
APART = ScriptStanding(SCRIPT, in_one_group=False, on_own_terminal=True)


def came(number: int, code: int, sender: int = 0) -> signal.struct_siginfo:
    """Return what ``sigwaitinfo`` returns."""
    return signal.struct_siginfo((number, code, 0, sender, 0, 0, 0))


def aim(
    standing: ScriptStanding, number: int, code: int, reached: Reached = Reached.LAUNCHER
) -> Aim:
    return standing.aim(came(number, code, STRANGER), lambda: reached)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN])
@pytest.mark.parametrize("code", [0, -1, -6])
def test_signal_of_a_process_is_passed_on_to_whom_it_was_for(number: int, code: int) -> None:
    for standing in (BESIDE, LEADING, APART):
        assert aim(standing, number, code) is Aim.SCRIPT
        assert aim(standing, number, code, Reached.ALL) is Aim.NOBODY
    assert aim(BESIDE, number, code, Reached.ITS_GROUP) is Aim.NOBODY  # the script is in it
    assert aim(LEADING, number, code, Reached.ITS_GROUP) is Aim.GROUP
    assert aim(APART, number, code, Reached.ITS_GROUP) is Aim.GROUP


def test_signal_of_the_script_and_of_profd_itself_is_nobodys() -> None:
    for standing, sender in product((BESIDE, LEADING, APART), (SCRIPT, os.getpid())):
        assert standing.aim(came(signal.SIGTERM, 0, sender), pytest.fail) is Aim.NOBODY


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGWINCH])
def test_terminal_tells_the_whole_group(number: int) -> None:
    assert aim(BESIDE, number, SI_KERNEL) is Aim.NOBODY
    assert aim(LEADING, number, SI_KERNEL) is Aim.GROUP


def test_which_signals_are_passed_on_to_the_script() -> None:
    assert [aim(APART, number, SI_KERNEL) for number in (signal.SIGINT, signal.SIGHUP)] == [
        Aim.TERMINAL
    ] * 2
    assert aim(APART, signal.SIGWINCH, SI_KERNEL) is Aim.NOBODY
    assert aim(LEADER, signal.SIGHUP, SI_KERNEL) is Aim.SCRIPT
    assert aim(LEADER, signal.SIGINT, SI_KERNEL) is Aim.NOBODY
    assert aim(BESIDE, signal.SIGALRM, SI_KERNEL) is Aim.SCRIPT
    assert aim(BESIDE, signal.SIGCHLD, 1) is Aim.NOBODY
    assert not TAKEN & {*STOPPING, signal.SIGSEGV, signal.SIGKILL, signal.SIGSTOP}
    assert {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGCHLD,
        signal.SIGCONT,
    } <= TAKEN


def test_a_sender_that_sleeps_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    with subprocess.Popen(["sleep", "1000"]) as asleep:
        until(lambda: (stat := processes.read_stat(asleep.pid)) and stat.state == "S", "its sleep")
        await_sender(came(signal.SIGTERM, 0, asleep.pid))
        asleep.kill()
    await_sender(came(signal.SIGTERM, 0, asleep.pid))  # nor one that is gone


def test_a_sender_that_goes_on_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(time, "sleep", looks.append)
    await_sender(came(signal.SIGTERM, 0, os.getpid()))  # this process, which runs
    assert looks
