"""Why a process cannot be read: seen in real ones, and in made-up maps."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.interpreters import VERSIONS, python, standing

from profd.daemon import elf, processes
from profd.daemon.tree.unread import Reason, why_unread

DEEP = """
import sys, threading
sys.setrecursionlimit(10_000)
threading.stack_size(256 << 20)
def down(n): down(n - 1) if n else ready()
threading.Thread(target=down, args=(4_200,)).start()
"""
BESIDE = """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
beside = interpreters.create()
ready()
"""
BACK_THERE = """
import runpy, sys
runpy.run_path(sys.argv[1])
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_thread_too_deep_for_py_spy_is_counted(version: str) -> None:
    with standing(DEEP, python(version)) as process:
        reason = why_unread(process.pid)
    assert reason is not None
    assert reason.what.startswith("a thread of it is 4,2")
    assert not reason.lasting


@pytest.mark.parametrize("version", VERSIONS)
def test_an_interpreter_beside_the_main_one_is_seen(version: str) -> None:
    with standing(BESIDE, python(version)) as process:
        reason = why_unread(process.pid)
    assert reason is not None
    assert "more than one interpreter" in reason.what
    assert reason.lasting


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_process_that_can_be_read_no_reason_is_made_up(version: str) -> None:
    with standing("\nready()", python(version)) as process:
        assert why_unread(process.pid) is None


def test_a_folder_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    Path(folder).mkdir()
    (Path(folder) / "train.py").write_text("print('ready', flush=True); input()")
    with standing(BACK_THERE, sys.executable, f"{folder}/train.py") as process:
        reason = why_unread(process.pid)
    assert reason is not None
    assert "caf\ufffd/train.py is not UTF-8" in reason.what


PROGRAM = "/opt/mytrain"
TEXT, REST = "{} r-xp {} fe:00 7 /opt/mytrain\n", "{} r--p {} fe:00 7 /opt/mytrain\n"
LOADED = REST.format("7f10-7f11", "00000000") + TEXT.format("7f11-7f20", "00000001")


def seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maps: str, kind: int = 3
) -> Reason | None:
    """Return the reason that a process of these maps has, whose program has a Python in it."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/exe").write_bytes(bytes(16) + bytes([kind, 0]))
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "link", lambda pid, name: PROGRAM)
    monkeypatch.setattr(processes, "maps", lambda pid: maps)
    monkeypatch.setattr(
        elf, "python_in", lambda path: "3.11" if path.endswith(("exe", "libmine.so")) else None
    )
    return why_unread(7)


def test_a_program_that_is_mapped_again_below_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reason = seen(monkeypatch, tmp_path, TEXT.format("1000-2000", "00000007") + LOADED)
    assert reason is not None
    assert "mapped a second time" in reason.what


@pytest.mark.parametrize(
    ("maps", "kind"),
    [
        (LOADED, 3),
        (LOADED + TEXT.format("7f30-7f31", "00000007"), 3),
        (TEXT.format("1000-2000", "00000007") + LOADED, 2),
    ],
    ids=["once", "again above", "of a program that cannot be moved"],
)
def test_other_maps_are_no_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, maps: str, kind: int
) -> None:
    assert seen(monkeypatch, tmp_path, maps, kind) is None


def test_a_python_in_a_library_of_another_name_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = "7f30-7f40 r-xp 00000001 fe:00 8 /opt/libmine.so\n"
    monkeypatch.setattr(
        elf, "python_in", lambda path: "3.11" if path.endswith("libmine.so") else None
    )
    real = elf.python_in
    found = seen(monkeypatch, tmp_path, LOADED + library)
    assert found is None  # the program has one itself
    monkeypatch.setattr(elf, "python_in", real)
    found = why_unread(7)
    assert found is not None
    assert "in /opt/libmine.so" in found.what


def test_a_file_that_may_not_be_opened_is_named_with_its_file_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = b"/dev/vda / ext4 rw 0 0\nfar: /home/ada/far fuse.sshfs rw 0 0\n"
    real_open, real_read = os.open, processes.read

    def read(path: str, most: int = 1 << 20) -> bytes | None:
        return mounts if path.endswith("mounts") else real_read(path, most)

    def refuse(path: Path, flags: int, **options: int) -> int:
        if Path(path).name == "exe":
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, **options)

    monkeypatch.setattr("os.open", refuse)
    monkeypatch.setattr(processes, "link", lambda pid, name: "/home/ada/far/bin/python3.11")
    monkeypatch.setattr(processes, "read", read)
    reason = why_unread(os.getpid())
    assert reason is not None
    assert reason.what == (
        "py-spy cannot open its file /home/ada/far/bin/python3.11 (Permission denied), "
        "on the fuse.sshfs file system at /home/ada/far"
    )
