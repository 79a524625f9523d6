"""Walks over stacks that are made by hand: each frame that is given is the one that is meant."""

from __future__ import annotations

import struct
from typing import cast

import pytest
from support.callframedata import SETS_RBP, FrameData, Function

from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.native.callframes import EndOfWalk
from profd.daemon.native.images import CodeOf, CodePlace, Image
from profd.daemon.native.walk import StackCopy, Walk, Walker

WAITS, CALLS, BEGINS, ENTRY, SIGNAL = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000
IN_WAITS, IN_CALLS, IN_BEGINS = WAITS + 0x80, CALLS + 0x40, BEGINS + 0x40
"""Where each of them is: the first waits, the others are returned to."""
SLOT, LOW = 0x9000, 0x7000
ONE_SIZE = b"\x55\x48\x89\xe5\x48\x83\xec\x30"  # push rbp; mov rbp, rsp; sub rsp, 0x30
FUNCTIONS = (
    Function(WAITS, 0x100, SETS_RBP),
    Function(CALLS, 0x100, b"\x0e\x20"),  # 24 bytes of its own
    Function(BEGINS, 0x100, b"\x07\x10"),
)


class HandMade(CodeOf):
    """Code that has what a test puts there, and nothing else."""

    def __init__(self) -> None:
        self._frames = FrameData(FUNCTIONS).table()
        self.code = bytearray(b"\x90" * 0x5000)
        self.slots: dict[int, int] = {}
        self.put(WAITS, ONE_SIZE)
        self.calls(IN_CALLS, WAITS)
        self.calls(IN_BEGINS, CALLS)

    def put(self, address: int, code: bytes) -> None:
        self.code[address - WAITS : address - WAITS + len(code)] = code

    def calls(self, before: int, target: int) -> None:
        """Let the call before an address be one of a function."""
        self.put(before - 5, b"\xe8" + struct.pack("<i", target - before))

    def is_code(self, address: int) -> bool:
        return WAITS <= address < WAITS + len(self.code)

    def place(self, address: int) -> CodePlace:
        if not self.is_code(address):
            raise EndOfWalk("no code")
        return CodePlace(cast(Image, self), address)

    @property
    def frames(self) -> object:
        return self._frames

    def read(self, address: int, length: int) -> bytes:
        return bytes(self.code[address - WAITS : address - WAITS + length])

    def resident(self, address: int, length: int) -> bytes:
        if address not in self.slots:
            raise Unreadable("it is not there")
        return self.slots[address].to_bytes(8, "little")


@pytest.fixture
def made() -> HandMade:
    return HandMade()


def walked(made: HandMade, words: dict[int, int], counter: int = IN_WAITS) -> Walk:
    """Walk a stack that has words at these offsets, and zeros."""
    data = bytearray(0x200)
    for at, value in words.items():
        struct.pack_into("<Q", data, at, value)
    return Walker(made).walk(StackCopy(LOW, bytes(data)), counter)


# the frame of the function that waits: 0x30 bytes, rbp, the return address; then 24 bytes and
# that of its caller
WHOLE = {0x38: IN_CALLS, 0x58: IN_BEGINS}
FRAMES = [IN_WAITS, IN_CALLS, IN_BEGINS]


def counters(walk: Walk) -> list[int]:
    return [frame.counter for frame in walk.frames]


def test_a_frame_at_rbp_is_found_by_the_room_that_its_function_takes(made: HandMade) -> None:
    walk = walked(made, WHOLE)
    assert (counters(walk), walk.end, walk.without_rbp) == (FRAMES, "", 1)
    assert [frame.within for frame in walk.frames] == [IN_WAITS, IN_CALLS - 1, IN_BEGINS - 1]


@pytest.mark.parametrize(
    "more",
    [
        b"\x48\x83\xec\x10",  # sub rsp, 16
        b"\x48\x81\xec\0\1\0\0",  # sub rsp, 256
        b"\x48\x83\xe4\xc0",  # and rsp, -64
        b"\x48\x81\xe4\0\xff\xff\xff",
        b"\x48\x29\xc4",  # sub rsp, rax
        b"\x4c\x29\xe4",  # sub rsp, r12
        b"\x48\x2b\xe0",  # sub rsp, rax, in other bytes
        b"\x48\x8d\x64\x24\xf0",  # lea rsp, [rsp - 16]
        b"\x48\x89\xc4",  # mov rsp, rax
        b"\x4c\x89\xd4",  # mov rsp, r10
    ],
)
def test_a_frame_of_no_one_size_ends_the_walk(made: HandMade, more: bytes) -> None:
    made.put(WAITS, ONE_SIZE + more)
    # an earlier call left a return address at the end of both sizes
    walk = walked(made, WHOLE | {0x48: IN_CALLS, 0x138: IN_CALLS})
    assert (counters(walk), walk.end) == ([IN_WAITS], "rbp is not known")


def test_room_that_is_taken_late_in_a_function_counts(made: HandMade) -> None:
    made.put(WAITS + 0xF0, b"\x48\x29\xc4")
    assert counters(walked(made, WHOLE)) == [IN_WAITS]


def test_what_an_earlier_call_left_is_not_taken(made: HandMade) -> None:
    assert counters(walked(made, WHOLE | {0x18: IN_CALLS, 0x88: IN_CALLS})) == FRAMES
    assert counters(walked(made, {0x18: IN_CALLS, 0x48: IN_CALLS})) == [IN_WAITS]


def by_pointer(made: HandMade, code: bytes = b"\xff\xd0") -> None:
    made.put(IN_CALLS - 5, b"\x90" * 5)
    made.put(IN_CALLS - len(code), code)


@pytest.mark.parametrize(
    "code",
    [b"\xff\xd0", b"\x41\xff\xd4", b"\xff\x50\x08", b"\xff\x54\x24\x08", b"\xff\x90\0\1\0\0"],
)
def test_a_call_by_a_pointer_counts_at_the_place_of_the_size(made: HandMade, code: bytes) -> None:
    by_pointer(made, code)
    assert counters(walked(made, WHOLE)) == FRAMES


def test_a_return_from_another_function_is_none_from_this_one(made: HandMade) -> None:
    made.calls(IN_CALLS, BEGINS)
    assert counters(walked(made, WHOLE)) == [IN_WAITS]


@pytest.mark.parametrize("entry", [b"", b"\xf3\x0f\x1e\xfa", b"\xf3\x0f\x1e\xfa\xf2"])
def test_a_call_through_the_plt_arrives_where_its_slot_says(made: HandMade, entry: bytes) -> None:
    after = ENTRY + len(entry) + 6
    made.put(ENTRY, entry + b"\xff\x25" + struct.pack("<i", SLOT - after))
    made.calls(IN_CALLS, ENTRY)
    assert counters(walked(made, WHOLE)) == [IN_WAITS]  # the slot is not resident
    made.slots[SLOT] = BEGINS
    assert counters(walked(made, WHOLE)) == [IN_WAITS]
    made.slots[SLOT] = WAITS
    assert counters(walked(made, WHOLE)) == FRAMES


def test_a_call_by_a_slot_counts_if_the_slot_has_the_function(made: HandMade) -> None:
    made.put(IN_CALLS - 6, b"\xff\x15" + struct.pack("<i", SLOT - IN_CALLS))
    for value, frames in ((BEGINS, [IN_WAITS]), (WAITS, FRAMES)):
        made.slots[SLOT] = value
        assert counters(walked(made, WHOLE)) == frames


def test_no_frame_is_taken_that_no_call_returns_to(made: HandMade) -> None:
    made.put(IN_BEGINS - 5, b"\x90" * 5)
    walk = walked(made, WHOLE)
    assert (counters(walk), walk.end) == (
        FRAMES[:2],
        "no call returns to the address that a frame has",
    )


def test_a_walk_ends_where_the_copied_stack_does(made: HandMade) -> None:
    short = StackCopy(LOW, bytes(0x38) + IN_CALLS.to_bytes(8, "little") + bytes(8))
    walk = Walker(made).walk(short, IN_WAITS)
    assert counters(walk) == FRAMES[:2]
    assert walk.end


def test_a_return_address_that_is_nought_is_no_beginning(made: HandMade) -> None:
    walk = walked(made, {0x38: IN_CALLS})
    assert (counters(walk), walk.end) == (FRAMES[:2], "a frame returns to nowhere")


def test_what_a_signal_interrupted_need_not_stand_behind_a_call() -> None:
    made = HandMade()
    handler = FrameData([Function(SIGNAL, 0x10, b"\x0e\x10")], letters=b"zRS").table()
    usual = made._frames

    class Both:
        def row(self, at: int) -> object:
            return (handler if at >= SIGNAL else usual).row(at)

    made._frames = Both()  # type: ignore[assignment]
    # a plain frame returns to what returns from a signal, which has the interrupted place
    walk = walked(made, {0x18: SIGNAL, 0x28: IN_WAITS, 0x68: IN_CALLS, 0x88: IN_BEGINS}, CALLS + 4)
    assert counters(walk) == [CALLS + 4, SIGNAL, *FRAMES]
    assert [frame.within for frame in walk.frames[:3]] == [CALLS + 4, SIGNAL, IN_WAITS]
