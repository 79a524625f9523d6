"""Breaks the product in one place at a time, and shows which test notices; writes docs/mutants.md.

The mutants are a list of patches, not those of a mutation library: mutmut and cosmic-ray change each operator and each
constant of 48,000 lines, which would take days to try, for bugs that hardly anybody would write.

Each mutant meets the file of the test that caught it last first, with the tests that mirror its own file, then the
quick ones, then with ``--until gate`` all. A test catches it that fails with it and passes without it.
"""

from __future__ import annotations

import argparse
import queue
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mutants.mutants import Mutant, NotApplicable, all_of, applied, load, named_tests
from mutants.worktree import Worktree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutants.md"
LEAST_SHARE = 0.9
QUICK = ("tests/unit", "tests/replay")
QUICK_MARKS = "not requires and not dashboard"
STAGES = ("mirrored", "quick", "gate")
LIMITS_S = {"mirrored": 600.0, "quick": 1200.0, "gate": 3600.0}
# A mutant may wait for what never comes; a test that ends at all takes seconds.
_TIMEOUT = "--timeout=90"


class Outcome(NamedTuple):
    """What became of a mutant: "caught" by a test, "survived", or "gone" where it is none of today's code."""

    mutant: Mutant
    result: str
    stage: str
    by: str


def outcome_of(mutant: Mutant, tree: Worktree, until: str, flawed: list[str]) -> Outcome:
    """Run tests with a mutant until one catches it; ``flawed`` are those that fail without a mutant too."""
    try:
        for stage in STAGES[: STAGES.index(until) + 1]:
            tests, options = _selection(stage, mutant, tree.root)
            by = (
                _caught_by(mutant, tree, tests, options, LIMITS_S[stage], flawed) if tests else None
            )
            if by is not None:
                return Outcome(mutant, "caught", stage, by)
    except NotApplicable as error:
        return Outcome(mutant, "gone", "", str(error))
    return Outcome(mutant, "survived", until, mutant.survives)


def _selection(stage: str, mutant: Mutant, root: Path) -> tuple[list[str], list[str]]:
    """Return the tests of a stage, and how they are run."""
    if stage == "mirrored":
        tests = dict.fromkeys(
            [*caught_last(mutant, root / "docs" / PAGE.name), *named_tests(mutant, root)]
        )
        return [test for test in tests if (root / test).exists()], ["-n", "0", _TIMEOUT]
    if stage == "quick":
        return [folder for folder in QUICK if (root / folder).exists()], [
            "-n",
            "0",
            _TIMEOUT,
            "-m",
            QUICK_MARKS,
        ]
    # The list's own test knows each of them by its text.
    return ["tests"], ["-n", "2", "--dist", "loadgroup", "--ignore=tests/mutants"]


def caught_last(mutant: Mutant, page: Path) -> list[str]:
    """Return the file of the test that caught a mutant when the page was written; none for a new one."""
    row = re.search(
        rf"^\| `\S+` {re.escape(mutant.name)} \|.*\| `([^`:]+)::", page.read_text(), re.MULTILINE
    )
    return [f"tests/{row[1]}"] if row else []


def _caught_by(
    mutant: Mutant,
    tree: Worktree,
    tests: list[str],
    options: list[str],
    limit_s: float,
    flawed: list[str],
) -> str | None:
    """Return the test that fails with the mutant and passes without it; None where there is none."""
    while True:
        with applied(mutant, tree.root):
            failed = tree.run(
                tests, [*options, *(f"--deselect={test}" for test in flawed)], limit_s
            )
        if failed is None or "::" not in failed:  # a file that cannot be imported, or no end
            return failed
        if tree.run([failed], ["-n", "0"], limit_s) is None:
            return failed
        if failed in flawed:
            raise NotApplicable(f"{failed} fails without it too, and cannot be left out")
        flawed.append(failed)


def run_all(mutants: list[Mutant], jobs: int, until: str) -> tuple[list[Outcome], list[str]]:
    """Run all mutants, some at a time, each time in a copy that no other one breaks."""
    flawed: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="profd-mutants-") as folder,
        ThreadPoolExecutor(jobs) as pool,
    ):
        trees: queue.Queue[Worktree] = queue.Queue()
        for number in range(jobs):
            trees.put(Worktree(ROOT, Path(folder, f"tree{number}")))

        def run_one(mutant: Mutant) -> Outcome:
            tree, began_s = trees.get(), time.monotonic()
            try:
                outcome = outcome_of(mutant, tree, until, flawed)
            finally:
                trees.put(tree)
            took_s = time.monotonic() - began_s
            print(f"{outcome.result:9}{mutant.name:34}{took_s:5.0f} s  {outcome.by}", flush=True)
            return outcome

        return list(pool.map(run_one, mutants)), flawed


def page_of(areas: dict[str, list[Mutant]], outcomes: list[Outcome]) -> str:
    """Return the page that lists the mutants, and what catches each."""
    caught = [one for one in outcomes if one.result == "caught"]
    lines = [
        "# Mutants",
        "",
        "`make mutants` puts one bug at a time into a copy of profd and runs the tests: first those that mirror the",
        "file, then the quick ones. A mutant is caught by a test that fails with it and passes without it. The list is",
        "in `tests/mutants/*.toml`; this page is written by the run.",
        "",
        f"The gate catches {len(caught)} of {len(outcomes)}.",
    ]
    by_name = {one.mutant.name: one for one in outcomes}
    for area, mutants in areas.items():
        lines += [
            "",
            f"## {area.capitalize()}",
            "",
            "| place | the bug | caught by |",
            "|---|---|---|",
        ]
        for mutant in mutants:
            one = by_name[mutant.name]
            test = f"`{one.by.removeprefix('tests/')}`"
            by = (
                test
                if one.result == "caught"
                else f"**{one.result}**: {one.by or 'no test notices'}"
            )
            lines.append(f"| `{mutant.file}` {mutant.name} | {mutant.means} | {by} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the mutants that the command line selects; 1 where too few are caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of the mutants; all of them by default")
    parser.add_argument(
        "--until", choices=STAGES, default="quick", help="which tests a mutant meets at the most"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    arguments = parser.parse_args()
    areas = load()
    outcomes, flawed = run_all(all_of(areas, arguments.names), arguments.jobs, arguments.until)
    left = [one for one in outcomes if one.result != "caught"]
    caught = len(outcomes) - len(left)
    print(f"\n{caught} of {len(outcomes)} caught")
    for one in left:
        print(
            f"{one.result}: {one.mutant.name} in {one.mutant.file}: {one.by or 'no reason is given'}"
        )
    for test in flawed:
        print(f"fails without a mutant too: {test}")
    if not arguments.names:
        PAGE.write_text(page_of(areas, outcomes))
    is_current = all(one.result != "gone" for one in outcomes)
    return 0 if is_current and caught >= LEAST_SHARE * len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
