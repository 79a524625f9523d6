"""DataLoader workers are found, named, and have hot functions of their own."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from sessions import record, running

from profd.daemon.analyze.functions import hot_functions
from profd.daemon.analyze.profile import take_profile
from profd.daemon.analyze.selection import Selection

SECONDS = 15


@pytest.mark.timeout(120)
@pytest.mark.requires("torch")
def test_two_workers_are_shown_with_their_roles_and_hot_functions() -> None:
    with running("loader.py") as program:
        reader = record(program.pid, SECONDS)
    with reader:
        trainers = [process for process in reader.processes.values() if process.role == "main"]
        workers = [process for process in reader.processes.values() if process.role == "worker"]
        assert [process.pid for process in trainers] == [program.pid]
        assert sorted(worker.ordinal or 0 for worker in workers) == [1, 2]
        assert {worker.parent for worker in workers} == {trainers[0].id}
        for worker in workers:
            selection = Selection(processes=frozenset({worker.id}))
            hot = [row.function for row in hot_functions(reader, take_profile(reader, selection))[:5]]
            assert "decode_image" in hot, hot


@pytest.mark.timeout(120)
@pytest.mark.requires("torch")
def test_workers_take_turns_so_that_each_gets_its_share_of_recordings() -> None:
    with running("loader.py") as program:
        reader = record(program.pid, SECONDS)
    with reader:
        turns = Counter(recording.process for recording in reader.recordings())
        workers = [process.id for process in reader.processes.values() if process.role == "worker"]
        assert len(workers) == 2
        assert all(turns[worker] >= 2 for worker in workers)
        ordered = [row for row in reader.recordings() if row.process in workers]
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(ordered))
