"""The lengths of recordings, and what follows from them."""

from __future__ import annotations

from profd.daemon.clock import SECOND_NS
from profd.daemon.recordingconfig import RECORDING, RecordingConfig


def test_whole_seconds_hold_a_recording_of_any_length() -> None:
    assert [RecordingConfig(length_s).whole_s for length_s in (0.5, 4.5, 9)] == [1, 5, 9]


def test_a_recording_is_far_shorter_than_the_longest_that_readers_look_for() -> None:
    assert 4 * RECORDING.length_s * SECOND_NS < RECORDING.longest_ns
