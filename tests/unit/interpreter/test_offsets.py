"""Offsets of CPython's structures: the table, and what interpreters say of themselves at the start
of their memory.
"""

from __future__ import annotations

import json
import struct
import sys
from typing import cast

import pytest
from msgspec.structs import asdict
from support.folders import DATA
from truth import interpreteroffsets

from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.interpreter.offsets import BY_VERSION, offsets_of

SAID: dict[str, str] = json.loads((DATA / "debug_offsets.json").read_text())
"""The first bytes of ``_PyRuntime`` in the memory of real interpreters, by version."""
RUNTIME = 0x5000
OWN = (sys.version_info.major, sys.version_info.minor)


class Recorded:
    """Memory that has these bytes at the place of the runtime."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, address: int, length: int) -> bytes:
        return self._data[address - RUNTIME :][:length]


def offsets_in(data: bytes, version: tuple[int, int]) -> dict[str, object]:
    return asdict(offsets_of(cast(Memory, Recorded(data)), RUNTIME, version))


def minor(version: str) -> tuple[int, int]:
    major, minor, _ = map(int, version.split("."))
    return major, minor


@pytest.mark.parametrize("release", SAID)
def test_an_interpreter_says_what_the_table_has(release: str) -> None:
    assert offsets_in(bytes.fromhex(SAID[release]), minor(release)) == asdict(
        BY_VERSION[minor(release)]
    )


def test_another_release_may_have_its_states_elsewhere() -> None:
    said = bytearray.fromhex(SAID["3.13.0"])
    threads_head = 8 + 8 * 8
    assert struct.unpack_from("<Q", said, threads_head) == (BY_VERSION[3, 13].threads,)
    struct.pack_into("<Q", said, threads_head, 7352)
    assert offsets_in(bytes(said), (3, 13))["threads"] == 7352


@pytest.mark.parametrize("release", SAID)
@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, int.from_bytes(b"ydebugpx", "little"), "does not begin as that of CPython"),
        (8, 0x030900F0, "another version"),
        (16, 1, "free-threaded"),
    ],
)
def test_what_says_something_else_is_not_read(
    release: str, at: int, value: int, reason: str
) -> None:
    said = bytearray.fromhex(SAID[release])
    struct.pack_into("<Q", said, at, value)
    with pytest.raises(Unreadable, match=reason):
        offsets_in(bytes(said), minor(release))


@pytest.mark.parametrize("release", SAID)
def test_other_structures_are_not_read(release: str) -> None:
    known = BY_VERSION[minor(release)]
    said = bytearray.fromhex(SAID[release])
    words = struct.unpack(f"<{len(said) // 8}Q", said)
    at = 8 * next(
        place
        for place in range(20, len(words))
        if words[place : place + 2] == (known.file, known.name)
    )
    struct.pack_into("<Q", said, at, known.file + 8)
    with pytest.raises(Unreadable, match="structures are not those"):
        offsets_in(bytes(said), minor(release))


@pytest.mark.parametrize("version", [(2, 7), (3, 7), (3, 16)])
def test_versions_that_are_not_in_the_table_are_not_read(version: tuple[int, int]) -> None:
    with pytest.raises(Unreadable, match="not known"):
        offsets_in(b"", version)


@pytest.mark.requires("cc")
def test_the_table_has_what_the_headers_have() -> None:
    printed = interpreteroffsets.printed([interpreteroffsets.headers()])
    assert len(printed) > 25
    known = {name: interpreteroffsets.known(OWN, name) for name in printed}
    differing = {name for name, values in known.items() if values and printed[name] not in values}
    assert differing == set()
    assert sum(map(bool, known.values())) > 20
