"""What is seen of processes that come and go."""

from __future__ import annotations

from pathlib import Path

import churn
import pytest
from support import synthetic

from profd.daemon.store.reader import RunReader


def test_churn_counts_who_stays_and_who_of_them_has_samples(tmp_path: Path) -> None:
    with RunReader(synthetic.write_run(tmp_path / "run.profd", seconds=20, workers=2)) as reader:
        seen = churn.see(reader, 0.1, 0.05)
    assert seen.main_share == pytest.approx(1.0)
    assert (seen.processes, seen.long_lived, seen.sampled, seen.errors) == (3, 3, 3, 0)
    assert seen.is_whole
    assert not seen._replace(main_share=0.98).is_whole
    assert not seen._replace(sampled=2).is_whole
