"""The walk from the place in which a thread waits to its beginning, over a copy of its stack.

A frame is one that nobody can doubt, or there is none: the walk ends if the caller is not sure.

At first only the stack pointer and the program counter are known. Other registers become known from
the first frame that has saved them. Few functions find their caller by rbp while it is not known.
Then the caller is known only if the function's code says how large its frame is.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

from profd.daemon.interpreter.memory import Unreadable
from profd.daemon.native.callframes import (
    RBP,
    RETURN,
    RSP,
    EndOfWalk,
    UnknownRegister,
    UnwindRow,
    step,
)
from profd.daemon.native.images import CodeOf

_MOST_FRAMES = 4096
_LONGEST_FUNCTION = 64 << 10
_ALIGNMENT = 16  # of each CFA, by the calling convention
_VARIES_STACK = re.compile(
    rb"\x48\x83\xe4|\x48\x81\xe4"  # and rsp, number: it aligns the stack
    rb"|[\x48\x4c]\x29[\xc4\xcc\xd4\xdc\xe4\xec\xf4\xfc]"  # sub rsp, register: alloca
    rb"|[\x48\x49]\x2b[\xe0-\xe7]|\x48\x8d[\x64\xa4]\x24"  # the same; lea rsp, of itself
    rb"|\x48\x89[\xc4\xcc\xd4\xdc\xf4\xfc]|\x4c\x89[\xc4\xcc\xd4\xdc\xe4\xec\xf4\xfc]"  # mov rsp
)
_TAKES_STACK = re.compile(rb"\x48\x83\xec(.)|\x48\x81\xec(....)", re.DOTALL)  # sub rsp, number
_CALL_BY_POINTER = re.compile(
    rb"""\xff (?: [\xd0-\xd7]  # what a register has
    | [\x10-\x13\x16\x17] | \x15 .{4}  # or memory at a register, or near the code
    | \x14 (?: [\x05\x0d\x15\x1d\x25\x2d\x35\x3d\x45\x4d\x55\x5d\x65\x6d\x75\x7d
               \x85\x8d\x95\x9d\xa5\xad\xb5\xbd\xc5\xcd\xd5\xdd\xe5\xed\xf5\xfd] .{4} | . )
    | [\x50-\x53\x55-\x57] . | \x54 ..  # with an offset of a byte
    | [\x90-\x93\x95-\x97] .{4} | \x94 .{5}  # with one of four
    ) \Z""",
    re.DOTALL | re.VERBOSE,
)
_BEGINS_FUNCTION = b"\xf3\x0f\x1e\xfa"  # endbr64


class WalkedFrame(NamedTuple):
    """A frame: its program counter, and an address in the code that it is in.

    The second is in the call if a call returns to the first, which may be in the next function.
    """

    counter: int
    within: int


class Walk(NamedTuple):
    """The frames of a thread, the innermost first, and why there are no more.

    ``end`` is empty if the walk came to the beginning of the thread. ``without_rbp`` counts the
    frames that go by rbp, and whose caller was found before rbp was known.
    """

    frames: tuple[WalkedFrame, ...]
    end: str
    without_rbp: int = 0


class StackCopy:
    """The words of a copied part of a stack that begins at ``low``."""

    def __init__(self, low: int, data: bytes) -> None:
        self.low, self.high, self._data = low, low + len(data), data

    def word(self, address: int) -> int:
        at = address - self.low
        if not 0 <= at <= len(self._data) - 8:
            raise EndOfWalk("a frame lies outside of the stack")
        return int.from_bytes(self._data[at : at + 8], "little")


class Walker:
    """Walks the stacks of one process."""

    def __init__(self, code: CodeOf) -> None:
        self._code = code
        self._calls: dict[tuple[int, int], str] = {}

    def walk(self, stack: StackCopy, counter: int) -> Walk:
        """Return the frames of a thread; ``stack`` begins at its stack pointer."""
        return _Way(self, self._code, stack, counter).walk()

    def call_before(self, address: int, function: int) -> str:
        """Return how the call goes that returns to an address; empty if there is none.

        It is "direct" if it surely calls the function that begins at ``function``, "other" if it
        calls another one, and "indirect" if a register or memory says what it calls.
        """
        if not self._code.is_code(address):
            return ""
        key = address, function
        if key not in self._calls:
            self._calls[key] = ""
            with contextlib.suppress(EndOfWalk):
                self._calls[key] = self._kind_of_call(address, function)
        return self._calls[key]

    def _kind_of_call(self, address: int, function: int) -> str:
        code = self._code.read(address - 7, 7)  # no call is longer
        number = int.from_bytes(code[3:], "little", signed=True)
        if code[2] == 0xE8 and self._code.is_code(address + number):
            return "direct" if self._arrival(address + number) == function else "other"
        if code[1:3] == b"\xff\x15":  # by a slot of the table of addresses
            return "direct" if self._slot(address + number) == function else "other"
        return "indirect" if _CALL_BY_POINTER.search(code) else ""

    def _arrival(self, address: int) -> int:
        """Return the function that a call reaches: an entry of the PLT jumps by a slot."""
        code = self._code.read(address, _ALIGNMENT).removeprefix(_BEGINS_FUNCTION)
        at = address + _ALIGNMENT - len(code)
        if code[:1] == b"\xf2":  # bnd
            code, at = code[1:], at + 1
        if code[:2] != b"\xff\x25":
            return address
        return self._slot(at + 6 + int.from_bytes(code[2:6], "little", signed=True))

    def _slot(self, address: int) -> int:
        """Return the address in a slot of the table of addresses; 0 if it is not known."""
        try:
            return int.from_bytes(self._code.resident(address, 8), "little")
        except Unreadable:
            return 0

    def is_signal_return(self, address: int) -> bool:
        """Return whether the handler of a signal returns to an address."""
        try:
            image, at = self._code.place(address)
            return image.frames.row(at).is_signal
        except EndOfWalk:
            return False


class _Way:
    """A walk that has come to a frame; its registers are those of the frame."""

    def __init__(self, walker: Walker, code: CodeOf, stack: StackCopy, counter: int) -> None:
        self._walker, self._code, self._stack = walker, code, stack
        self._registers: list[int | None] = [None] * (RETURN + 1)
        self._registers[RSP], self._registers[RETURN] = stack.low, counter
        self._cfa = self._without_rbp = 0
        self._is_exact = True

    def walk(self) -> Walk:
        counter, end = self._registers[RETURN] or 0, "it has too many frames"
        frames = [WalkedFrame(counter, counter)]
        while counter and len(frames) < _MOST_FRAMES:
            try:
                counter = self._step(self._row(frames[-1]))
            except EndOfWalk as error:
                end = str(error)
                break
            if counter:
                frames.append(WalkedFrame(counter, counter if self._is_exact else counter - 1))
        return Walk(tuple(frames), end if counter else "", self._without_rbp)

    def _row(self, frame: WalkedFrame) -> UnwindRow:
        """Return the rules of a frame, with addresses as the process has them."""
        image, at = self._code.place(frame.within)
        bias, row = frame.within - at, image.frames.row(at)
        return row._replace(
            start=row.start + bias, end=row.end + bias, frame_set=row.frame_set + bias
        )

    def _step(self, row: UnwindRow) -> int:
        """Go to the caller, and return its program counter; 0 if the thread began here."""
        try:
            registers, cfa = step(row, self._registers, self._stack.word)
        except UnknownRegister as unknown:
            if unknown.register != RBP:
                raise
            self._registers[RBP] = self._computed(row) - row.cfa.number
            self._without_rbp += 1
            registers, cfa = step(row, self._registers, self._stack.word)
        counter = registers[RETURN] or 0
        if not counter and row.rules[RETURN].kind != "lost":
            raise EndOfWalk("a frame returns to nowhere")
        self._is_exact = row.is_signal
        if counter and not row.is_signal:
            if cfa <= self._cfa:
                raise EndOfWalk("a caller's frame is not above that of what it called")
            if not self._walker.call_before(counter, row.start):
                self._is_exact = self._walker.is_signal_return(counter)
                if not self._is_exact:
                    raise EndOfWalk("no call returns to the address that a frame has")
        self._registers = registers
        self._cfa = cfa
        return counter

    def _computed(self, row: UnwindRow) -> int:
        """Return the CFA of a function that has it in rbp, while that is not known.

        It lies above rsp by what the function saves and by the one number that it takes from rsp,
        if it takes nothing else. A call of this very function, or one by a pointer, has to return
        to the address below it. A return address that is looked for on the stack may be left from
        an earlier call: no rule for that was right each time.
        """
        rbp, size = row.rules.get(RBP), self._size(row)
        if row.cfa.kind == "offset" and rbp is not None and rbp.kind == "saved" and size:
            cfa = (self._registers[RSP] or self._stack.low) + size
            counter = self._stack.word(cfa - 8)
            if self._walker.call_before(counter, row.start) in ("direct", "indirect"):
                return cfa
        raise EndOfWalk("rbp is not known")

    def _size(self, row: UnwindRow) -> int | None:
        """Return how far rsp lies below the CFA: what is saved, and the number taken from rsp.

        None if that is not one number.
        """
        # a function takes its frame within its first 160 bytes, or in several parts
        taken = _TAKES_STACK.findall(
            self._code.read(row.frame_set, min(row.end - row.frame_set, 160))
        )
        length = row.end - row.start
        if len(taken) > 1 or length > _LONGEST_FUNCTION:
            return None
        if _VARIES_STACK.search(self._code.read(row.start, length)):
            return None
        return row.pushed + sum(int.from_bytes(short or long, "little") for short, long in taken)
