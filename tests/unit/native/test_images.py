"""Files and pages of this very process: what is read of them, and what is not."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.present import there

from profd.daemon import processes
from profd.daemon.interpreter.memory import Memory, Unreadable
from profd.daemon.native.callframes import EndOfWalk
from profd.daemon.native.images import CodeOf, Images, Mapping, mappings_of
from profd.daemon.processes import PAGE_BYTES

US = os.getpid()
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="native stacks: x86-64 alone"
)


@pytest.fixture
def code() -> Iterator[CodeOf]:
    with (
        contextlib.closing(Memory(US)) as memory,
        contextlib.closing(CodeOf(US, memory, Images())) as found,
    ):
        yield found


def address_of(function: object) -> int:
    return there(ctypes.cast(function, ctypes.c_void_p).value)  # type: ignore[arg-type]


def test_a_function_is_named_at_each_of_its_places_and_not_before(code: CodeOf) -> None:
    begins = address_of(ctypes.pythonapi.PyEval_SaveThread)
    names = code.names({begins, begins + 1, begins - 1})
    assert [names[begins + at].name == "PyEval_SaveThread" for at in (0, 1, -1)] == [
        True,
        True,
        False,
    ]
    assert code.names({begins + 1, begins + 2})[begins + 2] == names[begins]


def test_code_is_read_from_the_file_as_it_is_in_memory(code: CodeOf) -> None:
    begins = address_of(ctypes.pythonapi.PyEval_SaveThread)
    assert code.read(begins, 32) == ctypes.string_at(begins, 32)
    assert code.is_code(begins)
    row = code.place(begins).image.frames.row(code.place(begins).address)
    assert row.start == code.place(begins).address


def test_data_is_no_code_and_what_is_in_no_file_ends_the_walk(code: CodeOf) -> None:
    data = ctypes.create_string_buffer(8)
    assert not code.is_code(ctypes.addressof(data))
    for address in (ctypes.addressof(data), 0):
        with pytest.raises(EndOfWalk):
            code.place(address)


def test_a_page_that_is_not_resident_is_not_read(code: CodeOf, tmp_path: Path) -> None:
    file = tmp_path / "page"
    file.write_bytes(b"x" * PAGE_BYTES)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as page:
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        with pytest.raises(Unreadable, match="not resident"):
            code.resident(address, 8)
        assert page[0] == ord("x")
        assert code.resident(address, 8) == b"x" * 8


@pytest.mark.parametrize("is_same", [True, False])
def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
) -> None:
    library = next(one.path for one in mappings_of(processes.maps(US)) if "libc.so" in one.path)
    file = tmp_path / "libx.so"
    file.write_bytes(Path(library).read_bytes())
    head = file.read_bytes()[:PAGE_BYTES]
    if not is_same:
        head = head[:100] + b"another" + head[107:]
    # no such part is mapped, so that the kernel gives no descriptor of the very file
    about = file.stat()
    mapping = Mapping(1, 2, "r-xp", 0, about.st_dev, about.st_ino, str(file))
    assert (Images().open(US, mapping, head) is not None) is is_same
    other = mapping._replace(inode=about.st_ino + (not is_same))
    assert (Images().open(US, other, b"") is not None) is is_same


def test_a_file_is_opened_once_for_all_processes() -> None:
    images = Images()
    mapping = next(one for one in mappings_of(processes.maps(US)) if "libc.so" in one.path)
    first = images.open(US, mapping, b"")
    assert first is not None
    assert images.open(US, mapping, b"") is first


def test_a_text_is_no_program(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"no program" * 1000)
    about = file.stat()
    mapping = Mapping(1, 2, "r-xp", 0, about.st_dev, about.st_ino, str(file))
    assert Images().open(US, mapping, b"") is None
