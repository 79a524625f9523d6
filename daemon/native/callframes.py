"""Call frame information (.eh_frame) of x86-64: the step from a frame to its caller.

It belongs to a file, not to a process. All addresses here are those that the file is linked for.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import NamedTuple


class Register(IntEnum):
    """Registers by their DWARF numbers; the last is the return address."""

    RBX, RBP, RSP, R12, R13, R14, R15, RETURN = 3, 6, 7, 12, 13, 14, 15, 16


RBP, RSP, RETURN = Register.RBP, Register.RSP, Register.RETURN
PRESERVED = (Register.RBX, RBP, Register.R12, Register.R13, Register.R14, Register.R15)
"""The registers that a function leaves as they were, so that its caller still has them."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes at an address; raises EndOfWalk if there are none."""
Registers = Sequence["int | None"]
"""Values by DWARF's numbers; None if a value is not known."""


class EndOfWalk(Exception):
    """The caller of a frame is not known. The text says why."""


class UnknownRegister(EndOfWalk):
    """A register is needed whose value is not known."""

    def __init__(self, register: int) -> None:
        super().__init__(f"the value of register {register} is not known")
        self.register = register


class Cursor:
    """Takes numbers from bytes, one after the other; the first byte is at ``address``."""

    def __init__(self, data: bytes, address: int = 0) -> None:
        self._data, self._address, self._at = data, address, 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    @property
    def address(self) -> int:
        return self._address + self._at

    def take(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if len(found) < length:
            raise EndOfWalk("call frame information is cut off")
        self._at += length
        return found

    def rest(self) -> bytes:
        return self._data[self._at :]

    def fixed(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)

    def leb128(self, *, is_signed: bool) -> int:
        value = shift = 0
        while (byte := self.fixed("B")) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        value |= byte << shift
        return value - (1 << shift + 7) if is_signed and byte & 0x40 else value

    def block(self) -> bytes:
        return self.take(self.leb128(is_signed=False))

    def text(self) -> str:
        found = self.rest().partition(b"\0")[0]
        self.take(len(found) + 1)
        return found.decode("latin-1")

    def pointer(self, encoding: int) -> int:
        """Return an address, absolute or relative to its own place."""
        place, form = self.address, _POINTERS.get(encoding & 0x0F)
        if form is None or encoding & 0x70 not in (0, 0x10):
            raise EndOfWalk(f"an address is encoded as {encoding:#x}")
        return (self.fixed(form) + (place if encoding & 0x70 else 0)) % (1 << 64)


_POINTERS = {0x00: "<Q", 0x03: "<I", 0x04: "<Q", 0x0B: "<i", 0x0C: "<q"}
_OPERANDS: dict[str, Callable[[Cursor], int | bytes]] = {
    "u": partial(Cursor.leb128, is_signed=False),
    "s": partial(Cursor.leb128, is_signed=True),
    "e": Cursor.block,
    **{form: partial(Cursor.fixed, form=f"<{form}") for form in "BbHhIiQq"},
}
"""What follows an instruction: numbers of any length, an expression, a number as in struct."""


class UnwindRule(NamedTuple):
    """How a register of the caller, or the CFA, is found.

    ``kind`` is one of these:

    - "saved": at the CFA plus ``number``
    - "saved at": at the address that the expression ``code`` yields
    - "moved": it is in ``register``
    - "lost": it cannot be found
    - "offset": the CFA is ``register`` plus ``number``
    - "computed": the CFA is what the expression ``code`` yields
    """

    kind: str
    number: int = 0
    register: int = 0
    code: bytes = b""


UnwindRules = dict[int, UnwindRule]


class UnwindRow(NamedTuple):
    """How the caller's registers are found while the program counter is at one place.

    ``start`` and ``end`` are those of the function. ``pushed`` is how far below the CFA it saves
    registers. From ``frame_set`` on the CFA goes by rbp, if it does at all.
    """

    cfa: UnwindRule
    rules: UnwindRules
    start: int
    end: int
    is_signal: bool
    pushed: int
    frame_set: int


class _Common(NamedTuple):
    """What functions have in common (a CIE)."""

    code_align: int
    data_align: int
    encoding: int
    is_signal: bool
    is_augmented: bool
    instructions: bytes


class _RowState:
    """The rules that the instructions of a function build up, and from which place on they hold."""

    def __init__(self, common: _Common, start: int) -> None:
        self.common, self.location, self.frame_set = common, start, start
        self.start = start
        self.cfa = UnwindRule("lost")
        self.rules: UnwindRules = {}
        self.initial: UnwindRules = {}
        self.kept: list[tuple[UnwindRule, UnwindRules]] = []

    def run(self, instructions: bytes, pc: int) -> None:
        """Carry out the instructions for all places up to ``pc``."""
        cursor = Cursor(instructions)
        while not cursor.is_at_end and self.location <= pc:
            code = cursor.fixed("B")
            operands, effect = _INSTRUCTIONS.get(code & 0xC0 or code, ("", None))
            if effect is None:
                raise EndOfWalk(f"call frame information has the instruction {code:#x}")
            in_code = [code & 0x3F] if code & 0xC0 else []
            effect(self, *in_code, *(_OPERANDS[kind](cursor) for kind in operands))

    def advance(self, by: int) -> None:
        self.location += by * self.common.code_align

    def save(self, register: int, factored: int) -> None:
        self.rules[register] = UnwindRule("saved", factored * self.common.data_align)

    def move(self, register: int, source: int) -> None:
        self.rules[register] = UnwindRule("moved", register=source)

    def lose(self, register: int) -> None:
        self.rules[register] = UnwindRule("lost")

    def restore(self, register: int) -> None:
        self.rules.pop(register, None)
        if register in self.initial:
            self.rules[register] = self.initial[register]

    def save_at(self, register: int, code: bytes) -> None:
        self.rules[register] = UnwindRule("saved at", code=code)

    def remember(self) -> None:
        self.kept.append((self.cfa, dict(self.rules)))

    def recall(self) -> None:
        if not self.kept:
            raise EndOfWalk("call frame information recalls what it has not remembered")
        self.cfa, self.rules = self.kept.pop()

    def cfa_at(self, register: int, number: int) -> None:
        if register == RBP and self.frame_set == self.start:
            self.frame_set = self.location
        self.cfa = UnwindRule("offset", number, register)

    def cfa_register(self, register: int) -> None:
        self.cfa_at(register, self.cfa.number)

    def cfa_number(self, number: int) -> None:
        self.cfa = self.cfa._replace(number=number)

    def cfa_computed(self, code: bytes) -> None:
        self.cfa = UnwindRule("computed", code=code)

    def ignore(self, *_: int) -> None:
        """Leave the rules as they are."""


_INSTRUCTIONS: dict[int, tuple[str, Callable[..., None]]] = {
    # the first three have an operand in the code itself
    0x40: ("", _RowState.advance),  # advance_loc
    0x80: ("u", _RowState.save),  # offset
    0xC0: ("", _RowState.restore),  # restore
    0x00: ("", _RowState.ignore),  # nop
    0x02: ("B", _RowState.advance),  # advance_loc1
    0x03: ("H", _RowState.advance),  # advance_loc2
    0x04: ("I", _RowState.advance),  # advance_loc4
    0x07: ("u", _RowState.lose),  # undefined
    0x09: ("uu", _RowState.move),  # register
    0x0A: ("", _RowState.remember),  # remember_state
    0x0B: ("", _RowState.recall),  # restore_state
    0x0C: ("uu", _RowState.cfa_at),  # def_cfa
    0x0D: ("u", _RowState.cfa_register),  # def_cfa_register
    0x0E: ("u", _RowState.cfa_number),  # def_cfa_offset
    0x0F: ("e", _RowState.cfa_computed),  # def_cfa_expression
    0x10: ("ue", _RowState.save_at),  # expression
    0x11: ("us", _RowState.save),  # offset_extended_sf
    0x2E: ("u", _RowState.ignore),  # GNU_args_size
}
"""DWARF's instructions (version 5, section 6.4.2): operands, and what each does to the rules.

These are all that 44 libraries have: of C, C++, CPython, torch, CUDA, BLAS, Arrow and OpenSSL.
"""


class FrameTable:
    """The call frame information of one file, by the index that its linker made."""

    def __init__(self, read: Read, index: int) -> None:
        """Take the address of .eh_frame_hdr."""
        if read(index, 4) != b"\x01\x1b\x03\x3b":  # version 1, and the usual encodings
            raise EndOfWalk("the file has no index of its call frame information")
        self._read, self._index = read, index
        (self._count,) = struct.unpack("<I", read(index + 8, 4))
        self._common = lru_cache(256)(self._read_common)
        self.row = lru_cache(4096)(self._row)

    def _row(self, pc: int) -> UnwindRow:
        """Return the rules that hold at ``pc``; raises EndOfWalk if there are none."""
        place = self._record_of(pc)
        record = self._record(place)
        common = self._common(record.address - record.fixed("<I"))
        start = record.pointer(common.encoding)
        end = start + record.pointer(common.encoding & 0x0F)
        if not start <= pc < end:
            raise EndOfWalk("the function has no call frame information")
        if common.is_augmented:
            record.block()
        state = _RowState(common, start)
        state.run(common.instructions, pc)
        state.initial = dict(state.rules)
        state.run(record.rest(), pc)
        saved = [-rule.number for rule in state.rules.values() if rule.kind == "saved"]
        pushed = max(saved, default=0)
        return UnwindRow(
            state.cfa, state.rules, start, end, common.is_signal, pushed, state.frame_set
        )

    def _record_of(self, pc: int) -> int:
        """Return the address of the record of the function that ``pc`` may lie in."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            is_before = self._entry(middle)[0] <= pc
            low, high = (middle + 1, high) if is_before else (low, middle)
        if not low:
            raise EndOfWalk("the code lies before all functions of its file")
        return self._entry(low - 1)[1]

    def _entry(self, number: int) -> tuple[int, int]:
        """Return the addresses of a function, and of its record."""
        start, record = struct.unpack("<2i", self._read(self._index + 12 + 8 * number, 8))
        return start + self._index, record + self._index

    def _record(self, at: int) -> Cursor:
        (length,) = struct.unpack("<I", self._read(at, 4))
        if not 0 < length < 1 << 20:  # what claims to be longer is no record
            raise EndOfWalk("there is no call frame information where its index says")
        return Cursor(self._read(at + 4, length), at + 4)

    def _read_common(self, at: int) -> _Common:
        record = self._record(at)
        identity, version, letters = record.fixed("<I"), record.fixed("B"), record.text()
        if identity or version not in (1, 3) or letters[:1] not in ("", "z"):
            raise EndOfWalk("its call frame information has an unknown form")
        code_align, data_align = record.leb128(is_signed=False), record.leb128(is_signed=True)
        if record.leb128(is_signed=False) != RETURN:
            raise EndOfWalk("its call frame information is not that of x86-64")
        encoding = 0
        augmentation = Cursor(record.block() if letters else b"", record.address)
        for letter in letters[1:]:
            if letter == "R":
                encoding = augmentation.fixed("B")
            elif letter == "P":
                augmentation.pointer(augmentation.fixed("B") & 0x0F)
            elif letter == "L":
                augmentation.fixed("B")
        is_signal, is_augmented = "S" in letters, bool(letters)
        rest = record.rest()
        return _Common(code_align, data_align, encoding, is_signal, is_augmented, rest)


Word = Callable[[int], int]
"""Returns the 8 bytes at an address of the stack; raises EndOfWalk if they are not known."""


def step(row: UnwindRow, registers: Registers, word: Word) -> tuple[list[int | None], int]:
    """Return the registers of the caller, and the CFA; raises EndOfWalk.

    A thread began in a frame that has lost its return address.
    """
    rule = row.cfa
    if rule.kind == "computed":
        cfa = evaluate(rule.code, registers, word)
    elif rule.kind == "offset":
        cfa = known(registers, rule.register) + rule.number
    else:
        raise EndOfWalk("its call frame information has no CFA")
    found: list[int | None] = [None] * (RETURN + 1)
    for register in PRESERVED:
        found[register] = registers[register]
    found[RSP] = cfa
    for number, rule in row.rules.items():
        if number <= RETURN:
            found[number] = None
            try:
                found[number] = _value(rule, registers, word, cfa)
            except EndOfWalk:
                if number == RETURN:
                    raise
    if RETURN not in row.rules:
        raise EndOfWalk("its call frame information does not say where it returns to")
    return found, cfa


def _value(rule: UnwindRule, registers: Registers, word: Word, cfa: int) -> int | None:
    """Return what a register of the caller is, None if it is lost; raises EndOfWalk."""
    if rule.kind == "saved":
        return word(cfa + rule.number)
    if rule.kind == "moved":
        return known(registers, rule.register)
    if rule.kind == "lost":
        return None
    return word(evaluate(rule.code, registers, word, [cfa]))


def known(registers: Registers, register: int) -> int:
    value = registers[register] if register <= RETURN else None
    if value is None:
        raise UnknownRegister(register)
    return value


def evaluate(code: bytes, registers: Registers, word: Word, stack: Sequence[int] = ()) -> int:
    """Return what a DWARF expression yields; raises EndOfWalk, also for what is not in the table.

    It has no jumps, so it ends.
    """
    cursor, values = Cursor(code), list(stack)
    while not cursor.is_at_end:
        operation = cursor.fixed("B")
        operands, count, result = _OPERATIONS.get(operation, ("", 0, None))
        if result is None or len(values) < count:
            raise EndOfWalk(f"an expression has the operation {operation:#x}")
        taken = [values.pop() for _ in range(count)][::-1]
        given = [_OPERANDS[kind](cursor) for kind in operands]
        values.append(result(registers, word, *taken, *given) % (1 << 64))
    if not values:
        raise EndOfWalk("an expression yields nothing")
    return values[-1]


Operation = tuple[str, int, Callable[..., int]]
"""The operands of an operation, how many values it takes, and the result."""


def _binary(of: Callable[[int, int], int]) -> Operation:
    return "", 2, lambda _registers, _word, first, second: int(of(first, second))


def _constant(form: str) -> Operation:
    return form, 0, lambda _registers, _word, value: value


def _literal(value: int) -> Operation:
    return "", 0, lambda _registers, _word: value


def _register(register: int) -> Operation:
    return "s", 0, lambda registers, _word, offset: known(registers, register) + offset


_OPERATIONS: dict[int, Operation] = {
    0x06: ("", 1, lambda _registers, word, address: word(address)),  # deref
    **{code: _constant(form) for code, form in zip(range(0x08, 0x12), "BbHhIiQqus", strict=True)},
    0x1A: _binary(operator.and_),
    0x1C: _binary(operator.sub),
    0x22: _binary(operator.add),
    0x23: ("u", 1, lambda _registers, _word, value, more: value + more),  # plus_uconst
    0x24: _binary(lambda value, bits: value << (bits & 63)),  # shl
    0x2A: _binary(operator.ge),
    **{0x30 + value: _literal(value) for value in range(32)},  # lit0 and so on
    **{0x70 + register: _register(register) for register in range(32)},  # breg0 and so on
}
"""The operations that compilers and the C library use: operands, values taken, and the result.

Compilers write them for entries of the PLT and for frames that are aligned, the C library for what
returns from signals.
"""
