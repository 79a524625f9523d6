"""Dumps of torch's flight recorder: one that torch 2.14 wrote, and what is no dump.

``flight_recorder.pickle`` is of rank 0 of two gloo ranks with TORCH_FR_BUFFER_SIZE=200, by
``_dump_fr_trace``: the other rank did not come to the third ``all_reduce``. Its paths were replaced
by others of the same length.
"""

from __future__ import annotations

import pickle
import random

import pytest
from support.folders import TESTS

from profd.daemon.collectives import flightrecorder
from profd.daemon.collectives.flightrecorder import BadDump, paths_of, read_dump

DUMP = (TESTS / "data" / "flight_recorder.pickle").read_bytes()


def is_library(file: str) -> bool:
    return "site-packages" in file


def test_a_dump_of_torch_names_the_collective_that_has_not_ended_and_one_of_before_none() -> None:
    (one,) = read_dump(DUMP, 0, is_library)
    assert one.in_words() == "all_reduce 3 of default_pg is scheduled at fr2.py:12"
    assert read_dump(DUMP, 1 << 62, is_library) == ()


def test_it_is_read_as_pickle_reads_it() -> None:
    assert flightrecorder._load(DUMP) == pickle.loads(DUMP)  # noqa: S301  our own file


class Harmful:
    """What runs something where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return print, ("harm",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        pickle.dumps([]),
        pickle.dumps({"entries": 1}),
        pickle.dumps(Harmful(), 2),
        DUMP[:-1],
    ],
)
def test_what_is_no_dump_is_refused_and_never_run(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadDump):
        read_dump(data, 0, is_library)
    assert capsys.readouterr().out == ""


def test_broken_dumps_raise_nothing_else() -> None:
    chance = random.Random(3)
    for _ in range(300):
        broken = bytearray(DUMP)
        for _ in range(chance.randrange(1, 6)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            read_dump(bytes(broken), 0, is_library)
        except BadDump:
            continue


def test_dumps_lie_where_the_job_says_or_where_torch_puts_them() -> None:
    paths = list(paths_of({"TORCH_FR_DUMP_TEMP_FILE": "/srv/fr_", "HOME": "/home/ada"}, 3))
    assert paths[0] == "/srv/fr_3"
    assert "/home/ada/.cache/torch/comm_lib_trace_rank_3" in paths
