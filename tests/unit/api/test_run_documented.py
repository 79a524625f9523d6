"""The examples of docs/api.md run as they stand there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.completerun import write_complete_run
from support.documents import samples
from support.folders import DOCS

EXAMPLES = [one for one in samples(DOCS / "api.md") if one.language == "python"]
SAYS = (
    "forward",
    "no run is called no-such-run",
    "s in the phase data wait",
    "MainThread",
    "over: ended",
)
"""What each of them prints, in their order."""


@pytest.mark.by_user
@pytest.mark.requires("pyarrow")
def test_examples_run_one_after_the_other(
    profd_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (profd_home / "runs").mkdir()
    write_complete_run(profd_home / "runs" / "a.profd")
    program = "\n".join(one.text for one in EXAMPLES)
    subprocess.run([sys.executable, "-c", program], check=True)
    said = capfd.readouterr().out
    for example, words in zip(EXAMPLES, SAYS, strict=True):
        assert words in said, example.place
