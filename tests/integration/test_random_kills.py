"""A few of the kills of ``benchmarks/kills.py``: early, in the first recording, and at a hand-over."""

from __future__ import annotations

from pathlib import Path

from kills import LOAD, Kill, kill_once, wrong_links
from sessions import running


def test_kills_hurt_neither_the_target_nor_the_file(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with running(LOAD, diary) as target:
        kills = [kill_once(target.pid, diary, after_s) for after_s in (0.05, 1.3, 5.2)]
    assert [kill for kill in kills if not kill.is_sound()] == []
    wrong, links = wrong_links(diary)
    assert wrong == 0
    assert links > 3


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
