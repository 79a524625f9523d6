from __future__ import annotations

from pathlib import Path

import pytest
from support.findingruns import Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)
