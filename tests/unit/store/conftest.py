"""What several tests of the store have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cost import longrun

from profd.daemon.store import database
from profd.daemon.store.tables import Tables


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.profd"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Tables]:
    """Give the tables of a run that is being written."""
    tables = Tables(database.create(tmp_path / "live.profd"), longrun.describe)
    tables.begin(longrun.run_started())
    yield tables
    tables.close()
