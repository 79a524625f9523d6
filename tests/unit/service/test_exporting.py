"""The process that serves metrics for the supervisor: started, begun again, ended; its program is made up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.hostfakes import Said
from support.waiting import eventually

from profd.daemon import processes
from profd.daemon.service import exporting
from profd.daemon.service.configuration import Configuration
from profd.daemon.service.exporting import Exporting, metrics_command

SERVING = "import os, sys; sys.stderr.write(f'{os.getpid()}\\n'); sys.stderr.flush(); sys.stdin.read()"


def pids(said: Said) -> list[int]:
    return [int(line.message) for line in said.lines if line.event == "metrics"]


def is_running(pid: int) -> bool:
    stat = processes.read_stat(pid)
    return stat is not None and stat.state != "Z"


def test_runs_are_served_where_it_is_wanted_alone() -> None:
    assert metrics_command(Configuration(), Path("/runs")) == ()
    wanted = Configuration(metrics="0.0.0.0:9464", otlp="http://there:4318")
    words = metrics_command(wanted, Path("/runs"))
    assert words[2:] == (
        "profd.daemon.metrics", "/runs", "0.0.0.0:9464", "--otlp", "http://there:4318", "--while-stdin"
    )  # fmt: skip
    assert metrics_command(Configuration(metrics="9464"), Path("/runs"))[3:] == ("/runs", "9464", "--while-stdin")


async def test_it_runs_until_another_one_is_wanted() -> None:
    said = Said()
    serving = Exporting(said)
    for number in (1, 2):
        command = (sys.executable, "-c", SERVING, str(number))
        serving.use(command)
        serving.use(command)  # the same again changes nothing
        await eventually(lambda number=number: len(pids(said)) == number, "the server's start")  # type: ignore[misc]
    first, second = pids(said)
    assert (is_running(first), is_running(second)) == (False, True)
    await serving.close()
    assert not is_running(second)
    assert "unserved" not in said.events


async def test_one_that_breaks_off_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_FIRST_REST_S", 0.01)
    said = Said()
    serving = Exporting(said)
    serving.use((sys.executable, "-c", "import sys; sys.exit('prometheus_client is missing')"))
    await eventually(lambda: said.events.count("unserved") >= 2, "a second failure")
    await serving.close()
    assert said.lines[0].message == "prometheus_client is missing"
    assert "broke off with 1" in said.lines[1].message
