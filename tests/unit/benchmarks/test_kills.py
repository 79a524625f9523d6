"""What the measurement of kills takes for sound."""

from __future__ import annotations

from pathlib import Path

from kills import Kill, wrong_links


def test_a_wrong_link_is_seen(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    diary.write_text("00\n")
    assert wrong_links(diary) == (1, 1)


def test_what_is_lost_or_stopped_is_not_sound() -> None:
    sound = Kill(1.0, frozenset("RS"), True, 1.0, "")
    assert sound.is_sound()
    assert not sound._replace(states=frozenset("RT")).is_sound()
    assert not sound._replace(ran_on=False).is_sound()
    assert not sound._replace(lost_s=9.0).is_sound()
    assert not sound._replace(failure="damaged").is_sound()
