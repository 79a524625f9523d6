"""Data packed for a page: columns come back as they were, in the narrowest numbers, where a browser
can use them.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from support.pages import unpack

from profd.daemon.render.htmlpage import pack

PAGE: dict[str, object] = {
    "title": "</script>",
    "pairs": [
        {"first": [1, 2, 255], "second": [-1, 70_000], "names": ["a"]},
        {"first": [], "second": [1 << 40], "names": []},
    ],
    "shares": [0.5, 8],
}


def inflated(page: dict[str, object]) -> tuple[dict[str, Any], int]:
    """Return the head of packed data, and where its columns begin."""
    raw = zlib.decompress(base64.b64decode(pack(page)))
    length = int.from_bytes(raw[:4], "little")
    return json.loads(raw[4 : 4 + length]), 4 + length + -(4 + length) % 8


def test_what_was_packed_is_unpacked_and_no_byte_of_it_can_be_markup() -> None:
    found = unpack(pack(PAGE))
    assert {**vars(found), "pairs": list(map(vars, found.pairs))} == PAGE
    assert not set(pack(PAGE)) & set("<>&\"'")


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([0, 255], "Uint8Array"),
        ([256], "Uint16Array"),
        ([65_535, 0], "Uint16Array"),
        ([65_536], "Uint32Array"),
        ([1 << 32], "Float64Array"),
        ([-1, 5], "Int32Array"),
        ([-1, 1 << 31], "Float64Array"),
    ],
    ids=str,
)
def test_a_column_is_as_narrow_as_its_numbers(numbers: list[int], kind: str) -> None:
    page: dict[str, object] = {"column": numbers}
    head, _ = inflated(page)
    assert head["column"]["numbers"] == kind
    assert unpack(pack(page)).column == numbers


def test_columns_alone_leave_the_head_and_begin_where_a_typed_array_may() -> None:
    for title in ("", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg"):
        head, behind = inflated({**PAGE, "title": title})
        assert behind % 8 == 0
        assert {
            pair[name]["at"] % 8
            for pair in head["pairs"]
            for name in ("first", "second")
            if pair[name]
        } == {0}
    head, _ = inflated(PAGE)
    assert head["shares"] == [0.5, 8]
    assert [(pair["first"] == [], pair["names"]) for pair in head["pairs"]] == [
        (False, ["a"]),
        (True, []),
    ]
