"""Versions that are known to hang: which are affected, and how those of a process are found."""

from __future__ import annotations

import mmap
import os
import platform
from pathlib import Path

import pytest

from profd.daemon import processes
from profd.daemon.hangs.knownhangs import entries, known_hangs, versions_of


@pytest.mark.parametrize(
    ("of", "version", "machine", "is_known"),
    [
        ("NCCL", "2.28.9", "aarch64", True),
        ("NCCL", "2.28.9", "x86_64", False),
        ("NCCL", "2.29.2", "x86_64", True),
        ("NCCL", "2.29.3", "aarch64", False),
        ("torch", "2.7.0+cu126", "x86_64", True),
        ("torch", "2.7.1+cu126", "x86_64", False),
        ("torch", "2.6.0", "x86_64", False),
        ("NVIDIA driver", "560.35.03", "x86_64", True),
        ("NVIDIA driver", "565.57.01", "x86_64", False),
        ("NVIDIA driver", "570.86.10", "x86_64", False),
        ("NVIDIA driver", "unknown", "x86_64", False),
    ],
)
def test_a_version_is_known_to_hang_from_the_first_to_before_the_last(
    of: str, version: str, machine: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    found = known_hangs({of: version}, [])
    assert [one.startswith(f"{of} {version} is known to hang: ") for one in found] == [
        True
    ] * is_known


@pytest.mark.parametrize(
    ("frames", "count"),
    [
        (["get /usr/lib/python3.11/queue.py"], 0),
        (["result /usr/lib/python3.11/concurrent/futures/process.py"], 1),
        (None, 1),
    ],
)
def test_a_hang_is_told_only_of_what_it_stands_in(frames: list[str] | None, count: int) -> None:
    assert len(known_hangs({"Python": "3.11"}, frames)) == count


def test_each_entry_has_a_public_source_and_can_match() -> None:
    for one in entries():
        assert one.source.startswith("https://")
        assert one.is_of(one.since if one.since != "0" else "0.1", one.machine)


def test_versions_are_those_of_the_libraries_that_a_process_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "version.py").write_text(
        "from typing import Optional\n__version__ = '2.7.0+cu126'\n"
    )
    library = package / "lib/libtorch_cpu.so"
    library.write_bytes(bytes(mmap.PAGESIZE))
    nccl = tmp_path / "libnccl.so.2.28.9"
    nccl.write_bytes(bytes(mmap.PAGESIZE))
    monkeypatch.setattr(processes, "python_version", lambda _: "3.11")
    mapped = []
    for path in (library, nccl):
        with path.open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    found = versions_of(os.getpid())
    found.pop("NVIDIA driver", None)
    assert found == {"NCCL": "2.28.9", "torch": "2.7.0+cu126", "Python": "3.11"}
    for one in mapped:
        one.close()
