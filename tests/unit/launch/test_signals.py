"""Which of the signals that a launcher takes the script still has to be given, by where they come from."""

from __future__ import annotations

import signal

import pytest

from profd.daemon.launch.signals import TAKEN, Standing

SI_KERNEL = 128
"""The si_code of a signal that the kernel itself sent."""

SCRIPT, STRANGER = 100, 200
BESIDE = Standing(SCRIPT, in_one_group=True, leads_session=False)
LEADER = Standing(SCRIPT, in_one_group=True, leads_session=True)
APART = Standing(SCRIPT, in_one_group=False, leads_session=False)


def came(number: int, code: int, sender: int = 0) -> signal.struct_siginfo:
    """Return what ``sigwaitinfo`` returns."""
    return signal.struct_siginfo((number, code, 0, sender, 0, 0, 0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN])
@pytest.mark.parametrize("code", [0, -1, -6])
def test_signal_of_a_process_is_passed_on(number: int, code: int) -> None:
    assert BESIDE.owes(came(number, code, STRANGER))
    assert APART.owes(came(number, code, STRANGER))
    assert not BESIDE.owes(came(number, code, SCRIPT))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGWINCH])
def test_terminal_tells_the_whole_group(number: int) -> None:
    assert not BESIDE.owes(came(number, SI_KERNEL))


def test_which_signals_are_passed_on_to_the_script() -> None:
    on_its_own_terminal = [APART.owes(came(number, SI_KERNEL)) for number in (signal.SIGINT, signal.SIGHUP)]
    assert on_its_own_terminal == [True, True]
    assert not APART.owes(came(signal.SIGWINCH, SI_KERNEL))
    assert LEADER.owes(came(signal.SIGHUP, SI_KERNEL))
    assert not LEADER.owes(came(signal.SIGINT, SI_KERNEL))
    assert BESIDE.owes(came(signal.SIGALRM, SI_KERNEL))
    assert not BESIDE.owes(came(signal.SIGCHLD, 1, SCRIPT))
    assert not TAKEN & {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGSEGV, signal.SIGKILL, signal.SIGSTOP}
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGCONT} <= TAKEN
