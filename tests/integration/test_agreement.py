"""profd beside bare py-spy on one process at one time: they must say the same of where the time goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from agreement import LIMIT, distances, start_py_spy
from sessions import begin_session, running

from profd.daemon.store.reader import RunReader

SECONDS = 20


@pytest.mark.timeout(120)
@pytest.mark.requires("torch")
def test_profd_and_py_spy_agree_on_a_torch_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with running("torchloop.py") as process:
        check_agreement(process.pid, tmp_path, capsys)


@pytest.mark.timeout(120)
def test_profd_and_py_spy_agree_on_plain_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running("known_phases.py", tmp_path / "diary") as process:
        check_agreement(process.pid, tmp_path, capsys)


def check_agreement(pid: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Record a process with profd and twice with py-spy side by side, and compare self time by function."""
    session = begin_session(pid, duration_s=SECONDS)
    raw = (folder / "1.raw", folder / "2.raw")
    beside = [start_py_spy(pid, SECONDS, file) for file in raw]
    assert session.wait_closed(SECONDS + 30)
    assert [process.wait(30) for process in beside] == [0, 0]
    found = distances(session.run_file, raw)
    with RunReader(session.run_file) as reader:
        samples = sum(recording.samples for recording in reader.recordings())
    with capsys.disabled():
        print(f"\n  profd to py-spy {found.profd:.3f}, py-spy to itself {found.py_spy:.3f} ({samples} samples)")
    assert samples > SECONDS * 60
    assert found.profd <= LIMIT
