"""Whatever is stopped, killed or hung up of profd's, in whatever order: the script makes its steps
and is not touched.

After each fault the script makes more steps than any buffer between it and profd has room for.
``benchmarks/trust/survival.py`` tries all orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faultcases import Case, chosen_cases, play
from support.faultscenes import Scene

pytestmark = pytest.mark.usefixtures("py_spy")


@pytest.fixture
def scene(profd_home: Path, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(profd_home, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("case", list(chosen_cases()), ids=str)
def test_the_script_goes_on(scene: Scene, case: Case) -> None:
    play(scene, case)
