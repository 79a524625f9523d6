"""`profd run --metrics` and `profd attach --metrics`: metrics while the run is recorded, and
nothing after it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

from support import launches
from support.present import there
from support.scrapes import is_answered, names, scrape
from support.waiting import DEADLINE_S, until

from profd.daemon import processes
from profd.daemon.metrics.catalog import METRICS
from profd.daemon.paths import list_runs
from profd.daemon.store.reader import RunReader

URL = re.compile(rb"^profd: metrics at (http://127\.0\.0\.1:\d+/metrics)$", re.MULTILINE)


def start(*words: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start profd with metrics at any port, and return where they are."""
    command = [launches.PROFD, *words]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
    found = there(URL.match(there(process.stderr).readline()))
    return process, found[1].decode()


def launched() -> tuple[subprocess.Popen[bytes], str, str]:
    """Launch a script with metrics, and return where they are, and a first scrape."""
    process, url = start(
        "run", "--headless", "--metrics", "0", "--", *launches.PYTHON, launches.WAITING
    )
    launches.read_ready(process)
    return process, url, scrape(url)


def has_samples() -> bool:
    with RunReader(list_runs()[0]) as reader:
        return any(recording.samples for recording in reader.recordings())


def exporter_of(pid: int) -> int:
    """Return the process below ``pid`` that answers scrapes."""
    (found,) = (
        one
        for one in processes.descendants(pid)
        if "profd.daemon.metrics" in processes.command_line(one)
    )
    return found


def test_metrics_are_there_while_the_script_runs_and_gone_with_it(profd_home: Path) -> None:
    process, url, text = launched()
    out, err, code = launches.finish(process)

    assert (out, code) == (b"done\n", 3)
    assert b"metrics" not in err
    assert names(text) <= {metric.name for metric in METRICS}
    assert 'profd_processes{role="main",' in text
    assert not is_answered(url)
    assert [path.suffix for path in (profd_home / "runs").iterdir()] == [".profd"]
    assert list((profd_home / "run").iterdir()) == []


def test_a_port_in_use_ends_the_command_before_the_script_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = launches.run(f"--metrics={port}", "--", "touch", str(tmp_path / "started"))

    assert done.returncode == 2
    assert f"port {port} (Address already in use)".encode() in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_killed_exporter_changes_nothing() -> None:
    process, _, _ = launched()
    until(has_samples, "samples")
    os.kill(exporter_of(process.pid), signal.SIGKILL)
    out, err, code = launches.finish(process)

    assert (out, code) == (b"done\n", 3)
    assert b"the metrics broke off" in err
    assert b"samples over" in err


def test_a_killed_session_takes_its_metrics_along_and_leaves_the_script_whole(
    profd_home: Path,
) -> None:
    process, url, _ = launched()
    exporter = exporter_of(process.pid)
    os.kill(launches.session_pid(process.pid), signal.SIGKILL)
    until(
        lambda: not launches.is_alive(exporter) and not is_answered(url), "the end of the exporter"
    )
    assert list((profd_home / "run").glob("*.metrics.log")) == []
    out, err, code = launches.finish(process)
    assert (out, code) == (b"done\n", 3)
    assert b"broke off" in err
    assert b"Traceback" not in err


def test_attach_has_metrics_until_it_is_stopped() -> None:
    script = subprocess.Popen(
        [*launches.PYTHON, launches.WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pid = launches.read_ready(script)
    process, url = start("attach", str(pid), "--headless", "--metrics", "0")
    assert "profd_run_info" in scrape(url)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)

    assert not is_answered(url)
    launches.finish(script)
