"""The memory that reading a run may take."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from profd.daemon.errors import RunUnreadable
from profd.daemon.store.bound import bounded_memory


def test_memory_is_bounded_by_the_size_of_the_runs_while_they_are_read(tmp_path: Path) -> None:
    small, large = tmp_path / "a.profd", tmp_path / "b.profd"
    small.write_bytes(b"x" * (1 << 20))
    large.write_bytes(b"x" * (4 << 20))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with bounded_memory(small):
        first, _ = resource.getrlimit(resource.RLIMIT_DATA)
        with bounded_memory(large):  # as of `profd diff`
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] - first == 64 * (4 << 20)
    with (
        pytest.raises(RunUnreadable, match="which is more than its size accounts for"),
        bounded_memory(small),
    ):
        bytearray(first)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
