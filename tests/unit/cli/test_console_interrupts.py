from __future__ import annotations

import signal

import pytest

from profd.cli.console import StopSignals


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_calls_the_reaction_once_and_a_second_acts_as_ever(
    number: signal.Signals, is_early: bool
) -> None:
    called: list[str] = []
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals() as signals:
        if is_early:
            signal.raise_signal(number)
        signals.call(lambda: called.append("stop"))
        if not is_early:
            signal.raise_signal(number)
        assert called == ["stop"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            signals.call(lambda: pytest.fail("an ignored signal was taken"))
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
