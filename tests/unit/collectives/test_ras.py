"""Where RAS is found, that it is the job's own, and which versions are not asked."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from support.folders import ROOT
from support.present import there
from support.ras import RasServer, job_of

from profd.daemon import processes
from profd.daemon.collectives import ras
from profd.daemon.collectives.client import Address, NoAnswer
from profd.daemon.collectives.ras import Ras, find, version_of

ME = os.getpid()


@pytest.fixture
def nccl(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Have this process map a libnccl; returns the environment that RAS is read from."""
    environment: dict[str, str] = {}
    maps = "7f00-7f01 r-xp 00000000 08:01 1    /usr/lib/x86_64-linux-gnu/libnccl.so.{version}\n"
    monkeypatch.setattr(
        processes, "maps", lambda _: maps.format(version=environment.get("version", "2.30.7"))
    )
    monkeypatch.setattr(processes, "environment", lambda pid, allowed: environment)
    return environment


def test_ras_is_found_where_a_process_itself_listens(nccl: dict[str, str]) -> None:
    world = job_of(2, first_pid=ME)
    with RasServer([world]) as server:
        nccl["NCCL_RAS_ADDR"] = f"localhost:{server.port}"
        found = there(find([ME]))
        assert found.address == Address("127.0.0.1", server.port)
        answer = found.ask()
        assert (answer.ours, answer.ranks()) == ({("10.0.0.1", ME): ME}, {ME: 0})


def test_a_port_of_another_process_is_not_asked(nccl: dict[str, str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        nccl["NCCL_RAS_ADDR"] = f"localhost:{other.getsockname()[1]}"
        with pytest.raises(NoAnswer, match="no process listens"):
            find([os.getppid()])


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"NCCL_RAS_ENABLE": "0"}, "turned RAS off"),
        ({"version": "2.29.1"}, "NCCL 2.29.1 is not asked: its answer sometimes destroys memory"),
        ({"version": "2"}, "version of NCCL is unknown"),
        ({"NCCL_RAS_ADDR": "localhost:1"}, "no process listens"),
        ({"NCCL_RAS_ADDR": "localhost:" + "1" * 5000}, "no process listens"),
    ],
)
def test_what_keeps_ras_from_being_asked_is_said(
    nccl: dict[str, str], environment: dict[str, str], text: str
) -> None:
    nccl.update(environment)
    with pytest.raises(NoAnswer, match=text):
        find([ME])


def test_a_run_without_nccl_has_no_ras(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = "7f00-7f01 r-xp 00000000 08:01 1    /usr/lib/x86_64-linux-gnu/libc.so.6\n"
    monkeypatch.setattr(processes, "maps", lambda _: libc)  # a test before may have loaded NCCL
    assert find([ME]) is None


def test_the_answer_of_another_job_at_the_same_port_is_not_taken() -> None:
    with RasServer([job_of(2, first_pid=5000)]) as server:
        with pytest.raises(NoAnswer, match="shared with other jobs"):
            Ras(Address("127.0.0.1", server.port), {ME: ME}).ask()
        assert server.asked == ras._TRIES


def test_a_pid_of_another_host_is_not_ours() -> None:
    world = job_of(4, first_pid=ME, per_host=3)
    world.ranks[3].pid = ME + 1
    with RasServer([world]) as server:
        answer = Ras(
            Address("127.0.0.1", server.port), {ME: ME, ME + 1: ME + 1, ME + 2: ME + 2}
        ).ask()
    assert set(answer.ours) == {("10.0.0.1", ME + number) for number in range(3)}


def test_the_version_is_that_of_the_file_or_of_its_wheel(tmp_path: Path) -> None:
    assert version_of(ME, "/usr/lib/libnccl.so.2.21.5") == (2, 21, 5)
    folder = tmp_path / "nvidia" / "nccl"
    (folder / "include").mkdir(parents=True)
    header = (
        "#define NCCL_MAJOR 2\n#define NCCL_MINOR 29\n#define NCCL_PATCH 3\n#define "
        'NCCL_SUFFIX ""\n'
    )
    (folder / "include" / "nccl.h").write_text(header)
    assert version_of(ME, f"{folder}/lib/libnccl.so.2") == (2, 29, 3)
    assert version_of(ME, "/opt/nccl/lib/libnccl.so.2") is None
    (folder / "include" / "nccl.h").write_text(header.replace("29", "2" * 5000))
    assert version_of(ME, f"{folder}/lib/libnccl.so.2") is None


def test_the_wheel_of_nccl_that_torch_brings_is_read() -> None:
    library = next(
        iter(ROOT.glob(".venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")), None
    )
    if library is None:
        pytest.skip("this torch comes without NCCL")
    assert there(version_of(ME, str(library))) > (2, 20, 0)
