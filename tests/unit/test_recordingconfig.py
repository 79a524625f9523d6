"""The lengths of recordings, and what follows from them."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.recordingconfig import RECORDING, RecordingConfig


def test_whole_seconds_hold_a_recording_of_any_length() -> None:
    longest = [RecordingConfig(steady_length_s=length_s) for length_s in (4.5, 9, 9.1)]
    assert [config.whole_s for config in longest] == [5, 9, 10]
    assert all(RECORDING.length_at(rate_hz) <= RECORDING.whole_s for rate_hz in (1, 20, 21, 1000))


def test_a_recording_is_far_shorter_than_the_longest_that_readers_look_for() -> None:
    assert 4 * RECORDING.length_s * SECOND_NS < RECORDING.longest_ns
