"""The verdict of a run whose names are hostile."""

from __future__ import annotations

from pathlib import Path

from support import hostiletexts
from support.dashboard import open_dashboard

from profd.tui.widgets.header import VerdictLine


async def test_names_of_the_run_are_spelled_out(tmp_path: Path) -> None:
    async with open_dashboard(hostiletexts.write_run(tmp_path / "a.profd"), size=(200, 60)) as opened:
        await opened.until_text(VerdictLine, "does what no rule for phases knows, at ")
        said = opened.text(VerdictLine)
        assert "\\u202egnol" in said
        assert not set(said) & set("\u202e\u2066\u2028\x1b\x00")
