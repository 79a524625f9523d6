"""The report's script writes numbers by the rules that all other texts follow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.folders import DATA

from profd.daemon.render.htmlpage import PAGE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = {
    "number": "significant",
    "plural": "counted",
    "percent": "percent",
    "size": "bytes",
    "step_time": "stepTime",
    "duration": "duration",
    "quantity": "quantity",
    "difference": "change",
    "signed_percent": "signedPercent",
}
"""What the functions of ``daemon.units`` are called in the script."""


def test_numbers_are_written_as_everywhere_else(chromium: Browser) -> None:
    rules = json.loads((DATA / "units.json").read_text())
    cases = [(name, given, text) for name, pairs in rules.items() for given, text in pairs]
    calls = [
        f"{NAMES[name]}({', '.join(json.dumps(word) for word in words_of(name, given))})" for name, given, _ in cases
    ]
    page = chromium.new_page()
    shown = page.evaluate(f"() => {{ {(PAGE / 'text.js').read_text()}; return [{', '.join(calls)}]; }}")
    page.close()
    assert dict(zip(calls, shown, strict=True)) == {call: text for call, (_, _, text) in zip(calls, cases, strict=True)}


def words_of(name: str, given: object) -> list[object]:
    """Return what a function of the script is given: a share as a part and its whole."""
    if isinstance(given, list):
        return given
    return [given, 1] if name == "percent" else [given]
