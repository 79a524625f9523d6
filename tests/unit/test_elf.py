"""Which program files hold a CPython, by files that are built here byte for byte."""

from __future__ import annotations

import os
import struct
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profd.daemon import elf, processes

VERSION = 0x030C01F0
ALL, EXPORTED = 2, 11


def made(
    kind: int = EXPORTED,
    *,
    names: bytes = b"_PyRuntime",
    own: bool = True,
    section: bytes = b".data",
) -> bytes:
    """Return an ELF file with three sections, data that begin with a version, symbols and names."""
    strings = b"\0" + names + b"\0Py_Version\0"
    symbols = b"".join(
        struct.pack("<I2BH2Q", strings.find(b"\0%b\0" % name) + 1, 0, 0, own, 0x4000, 8)
        for name in (b"", names, b"Py_Version")
    )
    titles = b"\0" + section + b"\0"
    parts = [VERSION.to_bytes(8, "little"), symbols, strings, titles]
    offsets = [64 + sum(map(len, parts[:number])) for number in range(len(parts))]
    heads = [
        (0, 0, 0, 0, 0),
        (1, 1, 0x4000, 0, 0),
        (0, kind, 0, 1, 3),
        (0, 3, 0, 2, 0),
        (0, 3, 0, 3, 0),
    ]
    table = b"".join(
        struct.pack(
            "<2I4Q2I2Q",
            name,
            what,
            0,
            address,
            offsets[part],
            len(parts[part]) if number else 0,
            link,
            0,
            1,
            24,
        )
        for number, (name, what, address, part, link) in enumerate(heads)
    )
    at = offsets[-1] + len(titles)
    header = struct.pack(
        "<16s2HI3QI6H", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, len(heads), 4
    )
    return b"".join([header, *parts, table])


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("kind", [ALL, EXPORTED])
def test_a_python_is_known_by_its_symbols_and_says_its_version(tmp_path: Path, kind: int) -> None:
    assert elf.python_in(written(tmp_path / "mytrain", made(kind))) == "3.12"


def test_a_stripped_python_is_known_by_its_section_and_says_no_version(tmp_path: Path) -> None:
    assert elf.python_in(written(tmp_path / "stripped", made(7, section=b".PyRuntime"))) == ""


def test_what_refers_to_a_python_elsewhere_or_is_no_program_holds_none(tmp_path: Path) -> None:
    assert elf.python_in(written(tmp_path / "extension.so", made(own=False))) is None
    assert elf.python_in(written(tmp_path / "other", made(names=b"_PyRuntimeState"))) is None
    assert elf.python_in(written(tmp_path / "python3", b"#!/bin/sh\n_PyRuntime\n")) is None
    assert elf.python_in(written(tmp_path / "empty", b"")) is None
    assert elf.python_in(str(tmp_path / "gone")) is None
    assert elf.python_in(str(tmp_path)) is None
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it
    assert elf.python_in(str(tmp_path / "pipe")) is None


@given(st.integers(0, 494), st.binary(max_size=80), st.booleans())
def test_no_file_breaks_the_look(at: int, wrong: bytes, is_cut: bool) -> None:
    data = made()
    descriptor = os.memfd_create("program")
    try:
        os.write(descriptor, data[:at] + wrong + (b"" if is_cut else data[at + len(wrong) :]))
        found = elf.python_in(f"/proc/self/fd/{descriptor}")
        assert found is None or found == "" or found.startswith("3.")
    finally:
        os.close(descriptor)


def test_a_process_runs_python_whatever_its_program_or_library_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("7/root/opt", "8", "9"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "7/exe").write_bytes(made(names=b"main"))
    (tmp_path / "7/root/opt/libmine.so").write_bytes(made())
    (tmp_path / "8/exe").write_bytes(made())
    (tmp_path / "9/exe").write_bytes(made(names=b"main"))
    line = "7f00-7f10 {} 00000000 fe:00 7 {}\n"
    maps = {
        7: line.format("r--p", "/data/set") + line.format("r-xp", "/opt/libmine.so"),
        8: "",
        9: line.format("r--p", "/usr/lib/libpython3.12.so.1.0"),  # as py-spy maps what it reads
    }
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "maps", maps.get)
    called = {7: "/opt/server", 8: "/home/ada/mytrain (deleted)", 9: "/opt/server"}
    monkeypatch.setattr(processes, "link", lambda pid, name: called[pid])
    assert [processes.python_version(pid) for pid in called] == ["3.12", "3.12", None]
    called[9] = "/opt/python3"  # whatever cannot be read goes by its name
    assert processes.python_version(9) == ""


def test_the_python_of_this_project_is_one() -> None:
    here = Path("/proc/self/maps").read_text()
    names = (
        name
        for name in dict.fromkeys(here.split())
        if name.startswith("/") and Path(name).is_file()
    )
    found = {version for name in names if (version := elf.python_in(name)) is not None}
    assert found <= {"", sysconfig.get_python_version()}
    assert len(found) == 1
