"""Which processes the rules of the supervisor name."""

from __future__ import annotations

import os

import pytest
from support.hostfakes import UID, FakeTable

from profd.daemon.processes import user_name
from profd.daemon.service.configuration import Configuration, Exclusion, Rule
from profd.daemon.service.processes import ProcessInfo, matching_rule


def subject(*command: str, torch: bool = False, gpu: bool = False, uid: int = UID) -> ProcessInfo:
    table = FakeTable()
    table.add(7, *command, torch=torch, gpu=gpu, uid=uid)
    return table.subjects[7]


def matched(one: ProcessInfo, *rules: Rule, exclude: tuple[Exclusion, ...] = ()) -> str | None:
    found = matching_rule(Configuration(rule=rules, exclude=exclude), one)
    return found.name if found else None


@pytest.mark.parametrize(
    ("rule", "meets"),
    [
        (Rule("r", torch=True), False),
        (Rule("r", gpu=True), True),
        (Rule("r", command=r"train\.py"), True),
        (Rule("r", command=r"^train"), False),
        (Rule("r", command="--lr 1"), True),
        (Rule("r", gpu=True, users=(str(UID),)), True),
        (Rule("r", gpu=True, users=("4711",)), False),
        (Rule("r", gpu=True, torch=True), False),
    ],
)
def test_all_that_a_rule_says_has_to_hold(rule: Rule, meets: bool) -> None:
    assert matched(subject("python", "train.py", "--lr", "1", gpu=True), rule) == ("r" if meets else None)


def test_users_are_names_or_numbers() -> None:
    mine = subject(torch=True, uid=os.getuid())
    for user in (user_name(os.getuid()), str(os.getuid())):
        assert matched(mine, Rule("r", torch=True, users=(user,))) == "r"


def test_exclusions_come_first() -> None:
    notebook = subject("python", "-m", "ipykernel", torch=True)
    rule = Rule("r", torch=True)
    assert matched(notebook, rule, exclude=(Exclusion(command="ipykernel"),)) is None
    assert matched(notebook, rule, exclude=(Exclusion(command="ipykernel", users=("4711",)),)) == "r"


def test_of_several_rules_the_one_with_the_least_age_counts() -> None:
    one = subject(torch=True)
    assert matched(one, Rule("late", torch=True, min_age_s=60), Rule("soon", torch=True, min_age_s=1)) == "soon"
