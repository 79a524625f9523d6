from __future__ import annotations

import ast
import inspect
import math
import re
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from support.folders import DOCS

from profd.daemon.analyze.phases import PHASES
from profd.daemon.analyze.selection import Selection
from profd.daemon.findings import texts
from profd.daemon.findings.context import FindingContext
from profd.daemon.findings.finding import INFO, Evidence, Finding, Line, Measure
from profd.daemon.findings.linetree import of_stacks
from profd.daemon.findings.phases import beside_steps, of_phase
from profd.daemon.findings.texts import SAID, Texts, table
from profd.daemon.findings.traces import of_kernels, of_waits

ROOM = Path(texts.__file__).parent
FORMS: dict[str, Callable[..., object]] = {
    "finding": FindingContext.finding,
    "of_phase": of_phase,
    "beside_steps": beside_steps,
    "of_stacks": of_stacks,
    "of_kernels": of_kernels,
    "of_waits": of_waits,
}
OF_EACH = {"share", "at", "speeds_up"}
FINDINGS = table().finding


class Place(NamedTuple):
    """A place in a rule that makes a finding: the words that it gives, and the cases that the
    module knows.
    """

    name: str
    words: set[str]
    cases: set[str]


def places() -> Iterator[Place]:
    """Yield each place where the code of the rules makes a finding whose name stands there."""
    for file in sorted(ROOM.glob("*.py")):
        tree = ast.parse(file.read_text())
        keys = (key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys)
        known = {text for key in keys if (text := text_of(key))}
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            form, arguments = name_of(call.func), call.args
            if form == "partial":
                form, arguments = name_of(arguments[0]), arguments[1:]
            if form in FORMS and arguments:
                words = {keyword.arg for keyword in call.keywords if keyword.arg} - options_of(
                    FORMS[form]
                )
                yield from (Place(name, words, known) for name in names_in(arguments[0]))


def names_in(node: ast.expr) -> list[str]:
    """Return the names of findings that stand in an argument: one, or one of two by a condition."""
    choices = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return [name for one in choices if (name := text_of(one))]


def options_of(form: Callable[..., object]) -> set[str]:
    parameters = inspect.signature(form).parameters.values()
    return {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}


def name_of(node: ast.expr) -> str:
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


def text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


PLACES = tuple(places())


def words_of(text: str | None) -> set[str]:
    return {word for _, word, _, _ in string.Formatter().parse(text or "") if word is not None}


def all_texts(one: Texts) -> dict[str, list[str]]:
    """Return the texts of a finding by name: its own, then those of its cases."""
    found = {name: [text] for name in SAID if (text := getattr(one, name))} | {
        name: [text] for name, text in one.words.items()
    }
    for case in one.case.values():
        for name, text in case.items():
            found.setdefault(name, []).append(text)
    return found


def test_each_rule_has_its_texts_with_words_that_are_given() -> None:
    assert sorted(one.name for one in PLACES) == sorted(FINDINGS)
    with pytest.raises(KeyError, match="does"):
        PLAIN.said({"share": "5 %", "at": "", "it": "that"}, {})


@pytest.mark.parametrize("one", PLACES, ids=lambda one: one.name)
def test_each_word_of_a_text_is_given_and_each_that_is_given_is_used(one: Place) -> None:
    every = all_texts(FINDINGS[one.name])
    used = {word for name in every for text in every[name] for word in words_of(text)}
    own = every.keys() - set(SAID)

    assert used - one.words - OF_EACH - FINDINGS[one.name].words.keys() == set()
    assert (one.words | own) - used == set()
    # A word of a case is one that the text has without the case, too.
    assert own <= FINDINGS[one.name].words.keys() | one.words | OF_EACH


@pytest.mark.parametrize("one", PLACES, ids=lambda one: one.name)
def test_each_case_is_one_that_its_rule_tells(one: Place) -> None:
    assert FINDINGS[one.name].case.keys() <= one.cases


def test_a_finding_names_a_phase_series_and_a_scale_that_there_are() -> None:
    assert {one.phase for one in FINDINGS.values()} - {None} <= {phase.name for phase in PHASES}
    pages = "".join((DOCS / name).read_text() for name in ("file-format.md", "gpu.md"))
    described = set(re.findall(r"`(\w+)`", pages))
    assert {series for one in FINDINGS.values() for series in one.series} <= described
    assert {one.scale for one in FINDINGS.values()} == set(table().scale)
    for scale in table().scale.values():
        reached = [share for share in msgspec.structs.astuple(scale) if share < math.inf]
        assert reached == sorted(set(reached)) != []


def test_a_bound_beyond_ten_times_is_nearly_all_of_the_step() -> None:
    assert texts.speeds_up(9.9) == "speeds steps up by at most 9.9\N{MULTIPLICATION SIGN}"
    assert texts.speeds_up(10.2, is_crowded=True) == "saves nearly all of the step"
    assert texts.speeds_up(10.2, trains=False) == "saves nearly all of the time"


def test_a_range_of_a_single_number_is_one_number() -> None:
    assert texts.speeds_up(1.84, 1.76) == "speeds steps up by about 1.8\N{MULTIPLICATION SIGN}"
    assert texts.speeds_up(1.86, 1.76) == "speeds steps up by 1.8 to 1.9\N{MULTIPLICATION SIGN}"


PLAIN = Texts(
    "lost",
    "{share} lost{at}{besides}",
    "It {does}.",
    "Keep {it}.",
    phase="other",
    words={"besides": ""},
)


def test_the_last_case_that_holds_decides() -> None:
    case = {"one": {"besides": " by {name}", "cause": "One."}, "two": {"cause": "Two, {does}."}}
    one = msgspec.structs.replace(PLAIN, case=case)
    given = {"share": "5 %", "at": " (a.py:1)", "does": "grows", "it": "that", "name": "me"}
    said = {
        "title": "5 % lost (a.py:1)",
        "cause": "It grows.",
        "remedy": "Keep that.",
        "measure": "other",
    }
    by_me = {"title": "5 % lost (a.py:1) by me", "cause": "One."}

    assert one.said(given, {}) == said
    assert one.said(given, {"one": True, "two": False}) == said | by_me
    assert one.said(given, {"one": True, "two": True}) == said | by_me | {"cause": "Two, grows."}


@pytest.mark.parametrize(
    ("case", "late", "said"),
    [("another", "2", "Rank 2 is late too."), ("several", "2, 3", "Ranks 2, 3 are late too.")],
)
def test_all_late_ranks_are_named(case: str, late: str, said: str) -> None:
    given = {
        word: ""
        for text in all_texts(FINDINGS["straggler"]).values()
        for word in words_of("".join(text))
    }

    assert FINDINGS["straggler"].said({**given, "late": late}, {case: True})["cause"].endswith(said)


NUMBERS = frozenset({
    *("share", "speeds_up", "own", "others", "times", "looks", "slower", "workers", "milliseconds", "of_function"),
    *("busy", "count", "pace", "could", "cheaper", "cores", "starts", "per_s", "memory", "threads", "idle", "most", "left"),
    *("slope", "a_step", "full", "copied", "limit", "total", "swapped", "pages", "lanes", "carried", "all_lanes", "now"),
    *("active", "took", "longer"),
})  # fmt: skip
"""The words that are a number, with its unit."""
MOST_NUMBERS = 2


@pytest.mark.parametrize("name", FINDINGS)
def test_no_sentence_has_more_than_two_numbers_and_no_title_a_setting(name: str) -> None:
    texts_of = all_texts(FINDINGS[name])
    for part in ("title", "cause"):
        for sentence in (one for text in texts_of[part] for one in re.split(r"[.?] ", text)):
            words = [word for _, word, _, _ in string.Formatter().parse(sentence) if word]
            assert sum(word in NUMBERS for word in words) <= MOST_NUMBERS, sentence
    assert "=" not in " ".join(texts_of["title"])


def advice(name: str, cases: dict[str, bool], number: str) -> Finding:
    """Return the finding with texts in which all words are a number, or name one."""
    one = FINDINGS[name]
    words = {word for every in all_texts(one).values() for text in every for word in words_of(text)}
    formats = {word: float(number) for word in ("threads", "cores", "pages")}
    given = dict.fromkeys(words, number) | formats | {"lanes": 1.0, "all_lanes": 1.0}
    said = one.said(given | {"now": 1.0, "most": 1.0}, cases)
    evidence = Evidence((Measure("a", 0.5),), 0, 1, Selection())
    said = {part: said[part] for part in ("title", "cause", "remedy")}
    return Finding(name, INFO, one.label, **said, gain_bound=None, evidence=evidence, page=name)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, one in FINDINGS.items() for case in one.case]
)
def test_other_advice_is_told_though_the_number_stays_and_other_numbers_in_it_are_not(
    name: str, case: str
) -> None:
    told, now = advice(name, {}, "2"), advice(name, {case: True}, "2")
    says_else = {*FINDINGS[name].case[case]} - {"title", "measure", "least", "on_host", "speeds_up"}

    assert now.repeats(advice(name, {case: True}, "37.5"))
    assert now.repeats(told) == (not says_else)


def test_a_line_that_calls_itself_is_named_once() -> None:
    line = Line("/home/me/train.py", "train.py", 17, None, "norm.<locals>.<genexpr>", 1)
    for number, said in ((17, ""), (34, ", from train.py:34")):
        call = msgspec.structs.replace(line, function="norm", line=number, frame=2)
        assert texts.at(line, call) == f" (train.py:17{said})"
