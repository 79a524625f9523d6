"""The same answers from a real Dask scheduler with two worker processes as from here."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleets import asked, make
from support.folders import PROGRAMS

from profd.cli.main import run_command_line
from profd.daemon.errors import ExitCode, RunUnreadable, SessionFailed
from profd.daemon.fleet import fleet
from profd.daemon.fleet.dataset import DataSet
from profd.daemon.fleet.fleet import Question, ask

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.requires("distributed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    # In a process of its own: multiprocessing starts a helper that stays until its process ends,
    # and other tests see to it that this one has no children left.
    words, pipe = [sys.executable, str(PROGRAMS / "daskcluster.py")], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as cluster:
        assert cluster.stdout is not None
        assert cluster.stdin is not None
        yield cluster.stdout.readline().strip()
        cluster.stdin.close()
        assert cluster.wait(60) == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a data set, which no test changes."""
    folder = tmp_path_factory.mktemp("fleet")
    make(folder)
    return folder


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have groups of five runs, so that both workers get some."""
    monkeypatch.setattr(fleet, "_MOST_RUNS", 5)


def test_a_cluster_gives_identical_answers_from_both_workers(
    made: Path, address: str, few_runs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    here = asked(made)
    assert here.slow_nodes
    assert ask(DataSet(str(made / "fleet")), Question(), address) == here
    with distributed.Client(address, set_as_default=False) as client:
        executed = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert len(executed) == 2
    assert all(executed.values())

    printed = []
    for words in ([], ["--dask", address]):
        assert run_command_line(["fleet", str(made / "fleet"), "--json", *words]) == ExitCode.OK
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_what_fails_on_a_worker_is_said_here(made: Path, tmp_path: Path, address: str) -> None:
    shutil.copytree(made / "fleet", tmp_path / "fleet")
    next((tmp_path / "fleet").glob("samples/**/*.parquet")).unlink()
    with pytest.raises(RunUnreadable, match="on a worker"):
        ask(DataSet(str(tmp_path / "fleet")), Question(), address)


def unknown_there(task: bytes) -> bytes:
    """Stand for a function that workers of another version lack: they cannot import this file."""
    return task


def test_workers_without_this_profd_are_said(
    made: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "reduce_encoded", unknown_there)
    with pytest.raises(SessionFailed, match="install this version of profd"):
        ask(DataSet(str(made / "fleet")), Question(), address)


def test_a_scheduler_without_workers_is_said(made: Path) -> None:
    with (
        distributed.LocalCluster(
            n_workers=0, processes=True, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        pytest.raises(SessionFailed, match="has no workers"),
    ):
        ask(DataSet(str(made / "fleet")), Question(), cluster.scheduler_address)


def test_no_scheduler_is_said_in_words(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_CONNECT_S", 0.5)
    with socket.socket() as bound:  # nobody listens
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(SessionFailed, match="no Dask scheduler"):
            ask(
                DataSet(str(made / "fleet")),
                Question(),
                f"tcp://127.0.0.1:{bound.getsockname()[1]}",
            )
