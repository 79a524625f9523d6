"""Names of jobs and nodes become names of folders that every reader understands, and none that leads elsewhere."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from profd.daemon.fleet.dataset import NONE, Partition, date_of, encoded, is_inside

HOSTILE = ["a/b", "a=b", "..", ".", ".hidden", "_temporary", NONE, "50%", "naïve 😈", "a\x00\n\u202eb", "*?[x]", "a\\b"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_harmless_part_of_a_path_and_can_be_read_back(name: str) -> None:
    part = encoded(name)
    assert unquote(part) == name
    assert not set("/\\=*?[]{}") & set(part)
    assert part.isascii()
    assert part.isprintable()
    assert part[0] not in "._"


def test_names_that_are_too_long_for_a_file_stay_apart() -> None:
    one, other = encoded("😈" * 500), encoded("😈" * 499 + "x")
    assert one != other
    assert max(len(one), len(other)) <= 120
    assert unquote(one).startswith("😈")
    assert "\ufffd" not in unquote(one)


def test_a_day_a_rank_and_what_is_not_known_have_their_place() -> None:
    assert Partition("2026-11-20", "", "a", None).path == f"date=2026-11-20/job={NONE}/node=a/rank={NONE}"
    assert Partition("2026-11-20", "a", "b", 0).path.endswith("/rank=0")
    midnight_ns = 1_795_132_800 * 10**9
    assert [date_of(midnight_ns - 1), date_of(midnight_ns)] == ["2026-11-19", "2026-11-20"]
    assert is_inside(f"samples/{Partition('2026-11-20', 'a/..', '*', 3).path}/run-0a.parquet")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "samples/../../x", "other/x.parquet", "samples//x", "samples/*.parquet"]
)
def test_a_path_that_leads_elsewhere_is_known(path: str) -> None:
    assert not is_inside(path)
