from __future__ import annotations

from pathlib import Path

from profd.daemon.events import EventKind

FORMAT = Path(__file__).parents[2] / "docs" / "file-format.md"


def test_a_kind_is_its_text_wherever_it_is_written() -> None:
    assert f"{EventKind.WALL_JUMP} {EventKind.WALL_JUMP!s}" == "wall-jump wall-jump"
    assert {"gap": 1}[EventKind.GAP] == 1


def test_a_kind_of_another_version_is_kept_and_has_no_sign() -> None:
    kind = EventKind("of a later version")
    assert f"{kind}" == kind.value == "of a later version"
    assert (kind.sign, kind.style) == (None, "dim")


def test_the_format_says_what_each_kind_means() -> None:
    (row,) = (line for line in FORMAT.read_text().splitlines() if line.startswith("| `event` |"))
    assert [kind for kind in EventKind if kind not in row] == []
