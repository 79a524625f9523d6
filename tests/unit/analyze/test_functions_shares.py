"""Shares of a profile, also of one whose samples stand for no time, as a damaged run file may have it."""

from __future__ import annotations

from pathlib import Path

from support import synthetic

from profd.daemon.analyze.functions import phase_lines, phase_shares, user_lines
from profd.daemon.analyze.phases import PhaseIndex
from profd.daemon.analyze.profile import Profile, take_profile
from profd.daemon.analyze.selection import MAIN_THREADS
from profd.daemon.store.reader import RunReader


def test_lines_share_out_the_time_and_none_is_none(tmp_path: Path) -> None:
    synthetic.write_run(tmp_path / "a.profd", seconds=5)
    with RunReader(tmp_path / "a.profd") as reader:
        phases, profile = PhaseIndex(reader), take_profile(reader, MAIN_THREADS)
        lines = user_lines(profile, phases)
        assert lines
        assert 0.9 < sum(line.share for line in lines) <= 1.0 + 1e-9
        assert [line.phase for line in phase_lines(profile, phases)] == [
            phase for phase in phase_shares(profile, phases) if any(line.phase == phase for line in lines)
        ]

        timeless = Profile(samples=profile.samples, time_ns=dict.fromkeys(profile.time_ns, 0.0))
        assert {line.share for line in user_lines(timeless, phases)} == {0.0}
        assert set(phase_shares(timeless, phases).values()) == {0.0}
