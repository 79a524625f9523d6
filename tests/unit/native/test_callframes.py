"""Call frame information that is made by hand: each instruction has its known answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.callframedata import AT_CALL, INDEX, PUSHES_RBP, SETS_RBP, FrameData, Function

from profd.daemon.native.callframes import (
    RBP,
    RETURN,
    RSP,
    EndOfWalk,
    FrameTable,
    UnknownRegister,
    UnwindRow,
    UnwindRule,
    evaluate,
    step,
)

START = 0x1000
SAVED = {RETURN: UnwindRule("saved", -8)}


def row(instructions: bytes, pc: int = START + 0x20) -> UnwindRow:
    return FrameData([Function(START, 0x100, instructions)]).table().row(pc)


@pytest.mark.parametrize(
    ("instructions", "cfa", "rules"),
    [
        (b"", UnwindRule("offset", 8, RSP), {}),
        (b"\x0e\x18", UnwindRule("offset", 24, RSP), {}),  # def_cfa_offset
        (b"\x0d\x06", UnwindRule("offset", 8, RBP), {}),  # def_cfa_register
        (b"\x0c\x06\x10", UnwindRule("offset", 16, RBP), {}),  # def_cfa
        (b"\x0f\x02\x77\x08", UnwindRule("computed", code=b"\x77\x08"), {}),  # def_cfa_expression
        (b"\x86\x02", None, {RBP: UnwindRule("saved", -16)}),  # offset
        (b"\x11\x06\x7e", None, {RBP: UnwindRule("saved", 16)}),  # offset_extended_sf
        (b"\x09\x06\x03", None, {RBP: UnwindRule("moved", register=3)}),  # register
        (b"\x10\x06\x01\x30", None, {RBP: UnwindRule("saved at", code=b"\x30")}),  # expression
        (b"\x07\x10", None, {RETURN: UnwindRule("lost")}),  # undefined
        (b"\x86\x02\xc6", None, {}),  # restore
        (b"\x07\x10\xd0", None, {}),  # restore, to what the CIE says
        (b"\x0a\x86\x02\x0e\x20\x0b", None, {}),  # remember_state, restore_state
        (b"\x2e\x10", None, {}),  # GNU_args_size
        (b"\x00\x00", None, {}),  # nop
        (b"\x40\x02\x00\x03\x00\x00\x04\x00\x00\x00\x00", None, {}),  # no advance at all
    ],
)
def test_an_instruction_makes_a_rule(
    instructions: bytes, cfa: UnwindRule | None, rules: dict[int, UnwindRule]
) -> None:
    found = row(instructions)
    assert found.cfa == (cfa or UnwindRule("offset", 8, RSP))
    assert found.rules == SAVED | rules


@pytest.mark.parametrize(
    "advance", [b"\x50", b"\x02\x10", b"\x03\x10\x00", b"\x04\x10\x00\x00\x00"]
)
def test_a_rule_holds_from_where_the_code_has_come_to_it(advance: bytes) -> None:
    instructions = advance + b"\x0e\x18"
    assert row(instructions, START + 15).cfa.number == 8
    assert row(instructions, START + 16).cfa.number == 24


def test_a_row_says_how_deep_a_function_saves_and_since_when_it_goes_by_rbp() -> None:
    found = row(SETS_RBP + b"\x83\x05")
    assert (found.start, found.end) == (START, START + 0x100)
    assert (found.pushed, found.frame_set) == (40, START + 4)
    assert row(PUSHES_RBP).frame_set == START


@given(functions=st.sets(st.integers(0, 500), min_size=1).map(sorted), asked=st.integers(0, 0x2000))
def test_the_index_finds_the_function_of_each_address_and_of_no_other(
    functions: list[int], asked: int
) -> None:
    starts = [START + 16 * number for number in functions]
    table = FrameData([Function(start, 12) for start in starts]).table()
    of = [start for start in starts if start <= asked < start + 12]
    if of:
        assert table.row(asked).start == of[0]
    else:
        with pytest.raises(EndOfWalk):
            table.row(asked)


def test_what_returns_from_a_signal_is_known_by_its_letter() -> None:
    data = FrameData([Function(START, 16)], letters=b"zRS")
    assert data.table().row(START).is_signal
    assert not row(b"").is_signal


def test_records_with_a_personality_and_without_letters_are_read() -> None:
    personality = b"\x9b\x00\x00\x00\x00\x1b\x1b"
    data = FrameData([Function(START, 16)], letters=b"zPLR", augmentation=personality)
    assert data.table().row(START).cfa == UnwindRule("offset", 8, RSP)


@pytest.mark.parametrize(
    "instructions",
    [b"\x01", b"\x16\x06\x01\x30", b"\x2f\x06\x02", b"\x3f", b"\x0b", b"\x0f\x7f\x30"],
)
def test_what_is_unknown_or_cut_off_ends_the_walk(instructions: bytes) -> None:
    with pytest.raises(EndOfWalk):
        row(instructions)


@pytest.mark.parametrize(
    "data",
    [
        FrameData([Function(START, 16)], return_register=30),
        FrameData([Function(START, 16)], letters=b"eh"),
        FrameData([Function(START, 16)], augmentation=b"\x30"),
    ],
)
def test_another_form_than_that_of_the_machine_ends_the_walk(data: FrameData) -> None:
    with pytest.raises(EndOfWalk):
        data.table().row(START)


def test_a_file_without_an_index_ends_the_walk() -> None:
    data = FrameData([Function(START, 16)])
    data.parts[INDEX] = b"\x01\x1b\xff\xff" + bytes(8)
    with pytest.raises(EndOfWalk, match="no index"):
        FrameTable(data.read, INDEX)


WORDS = {0x7010: 0x7100, 0x7018: 0x4000, 0x7020: 0x4444}


def word(address: int) -> int:
    if address not in WORDS:
        raise EndOfWalk("outside")
    return WORDS[address]


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (b"\x77\x08", 0x7008),  # rsp + 8
        (b"\x77\x70", 0x6FF0),  # rsp - 16
        (b"\x77\x10\x06", 0x7100),  # what lies at rsp + 16
        (b"\x77\x10\x06\x23\x08", 0x7108),
        # of an entry of the PLT: rsp + 8, and 8 more from its second instruction on
        (b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", 0x7010),
        (b"\x08\xff", 255),
        (b"\x09\xff", (1 << 64) - 1),
        (b"\x0b\xfe\xff\x35\x22", 3),
        (b"\x38\x33\x1c\x31\x24", 10),
        # of a frame that is aligned: rsp - 8, to 32 below, and 16 less
        (b"\x77\x00\x38\x1c\x0d\xe0\xff\xff\xff\x1a\x0d\xf0\xff\xff\xff\x22", 0x6FD0),
    ],
)
def test_an_expression_has_its_value(code: bytes, value: int) -> None:
    registers: list[int | None] = [None] * 17
    registers[RSP], registers[RETURN] = 0x7000, 0x100B
    assert evaluate(code, registers, word) == value


@pytest.mark.parametrize("code", [b"", b"\x2f\x00\x00", b"\x22", b"\x30\x22", b"\x06", b"\x08"])
def test_an_expression_that_is_none_ends_the_walk(code: bytes) -> None:
    with pytest.raises(EndOfWalk):
        evaluate(code, [None] * 17, word)


def registers(**known: int) -> list[int | None]:
    found: list[int | None] = list(range(17))
    found[RSP], found[RBP] = 0x7000, known.get("rbp")
    return found


def test_a_step_restores_what_was_saved_and_forgets_what_a_call_may_change() -> None:
    found, cfa = step(row(b"\x0e\x20\x86\x02"), registers(), word)
    assert (cfa, found[RSP], found[RETURN], found[RBP]) == (0x7020, 0x7020, 0x4000, 0x7100)
    assert [number for number in range(16) if found[number] == number] == [3, 12, 13, 14, 15]


def test_a_step_needs_the_register_that_the_cfa_goes_by() -> None:
    with pytest.raises(UnknownRegister) as unknown:
        step(row(SETS_RBP), registers(), word)
    assert unknown.value.register == RBP
    _, cfa = step(row(SETS_RBP), registers(rbp=0x7010), word)
    assert cfa == 0x7020


@pytest.mark.parametrize(
    ("instructions", "is_first"),
    [(b"\x07\x10", True), (b"\x09\x10\x00", False), (b"\x0e\x10", False)],
)
def test_a_thread_began_only_where_the_return_address_is_lost(
    instructions: bytes, is_first: bool
) -> None:
    here = registers()
    here[0] = None
    if is_first:
        assert step(row(instructions), here, word)[0][RETURN] is None
    else:
        with pytest.raises(EndOfWalk):
            step(row(instructions), here, word)


def test_the_hand_made_common_part_is_that_of_the_tests() -> None:
    assert row(AT_CALL).rules == SAVED
