"""Files of the kernel, read whole, and what is made of their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.processes import read, read_number, read_pairs, read_pressure_us


def test_a_list_that_the_kernel_hands_out_in_parts_is_read_whole() -> None:
    found = read("/proc/self/smaps")
    assert found is not None
    # Memory may be mapped in between: the first and the last map stay.
    whole = Path("/proc/self/smaps").read_bytes()
    assert len(found) > 3 * 4096
    assert found.splitlines()[0] == whole.splitlines()[0]
    assert found.splitlines()[-1][:8] == whole.splitlines()[-1][:8] == b"VmFlags:"
    assert found.count(b"VmFlags:") == pytest.approx(whole.count(b"VmFlags:"), abs=3)


def test_what_is_not_there_or_not_ours_is_none(tmp_path: Path) -> None:
    assert read(str(tmp_path / "none")) is None
    assert read(str(tmp_path)) is None, "a folder opens, and fails only when it is read"
    assert read_number(str(tmp_path / "none")) is None
    assert read_pairs(str(tmp_path / "none")) == {}
    assert read_pressure_us(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(("text", "number"), [("12\n", 12), ("max\n", None), ("-1\n", None), ("", None)])
def test_a_limit_may_be_a_word(tmp_path: Path, text: str, number: int | None) -> None:
    (tmp_path / "limit").write_text(text)
    assert read_number(str(tmp_path / "limit")) == number


def test_names_stand_at_the_beginning_of_lines(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tRssFile: 9\nRssFile:\t  12 kB\nnr_throttled 3\nState:\tS (sleeping)\n")
    assert read_pairs(str(tmp_path / "status")) == {b"RssFile": 12, b"nr_throttled": 3}
