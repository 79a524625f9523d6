"""What serving metrics takes while a real Prometheus scrapes a training whose workers come and go.

Run on a quiet machine: ``python benchmarks/run.py metrics [--minutes 60] [--every 5] [--quick]``;
needs the program `prometheus`. Writes its section of ``docs/measurements.md``, unless quick; ends
with 1 where a scrape was missed, the series changed, or more than 0.2 % of a core was taken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common import load
from common.measurements import write_section
from common.meters import Memory, memory_of, own_cpu_s
from common.recorders import Profd

from profd.daemon import processes
from profd.daemon.store.reader import RunReader

MOST_CORES = 0.002
PER_SECOND = 4
WARM_S = 150.0
"""By then the exporter has looked for findings, which may add their series."""
QUICK_MINUTES = 4.0
METHOD = (
    "`benchmarks/cost/metrics.py`: a Prometheus {version} scrapes `profd attach --headless --metrics` "
    "every {every} s for {minutes:g} minutes, on `benchmarks/common/loads/churning.py` with {per_second} "
    "children a second. CPU is what the kernel says of the process that serves, with all that it "
    "does: its start, scrapes, findings. Scrapes and series are what Prometheus says; series are "
    "counted from {warm:.0f} s on, the CPU time of a scrape too."
)


class Served(NamedTuple):
    """What Prometheus saw, and what serving took."""

    scrapes: int
    missed: int
    series: tuple[int, int]
    slowest_s: float
    processes: int
    cores: float
    scrape_ms: float
    memory: Memory

    @property
    def holds(self) -> bool:
        """Whether all is as it is to be."""
        return self.missed == 0 and self.series[0] == self.series[1] and self.cores <= MOST_CORES

    def lines(self) -> list[str]:
        """Return the table."""
        return [
            "| scrapes | missed | slowest | series | processes | CPU | by the scrape | RSS |",
            "|---:" * 8 + "|",
            f"| {self.scrapes} | {self.missed} | {self.slowest_s * 1e3:.0f} ms | {self.series[0]} "
            f"to {self.series[1]} | {self.processes} | {self.cores:.3%} | {self.scrape_ms:.1f} ms "
            f"| {self.memory.rss_bytes / 1e6:.0f} MB |",
        ]


class Prometheus:
    """A Prometheus of this benchmark."""

    def __init__(self, url: str) -> None:
        self._url = url

    def value(self, query: str) -> float:
        """Return the value of a query; ends the benchmark where it has none."""
        words = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{words}", timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
        return (
            float(found[0]["value"][1])
            if found
            else sys.exit(f"Prometheus has nothing for {query}")
        )

    def wait_ready(self) -> None:
        """Wait until it answers; ends the benchmark where it does not."""
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self._url}/-/ready", timeout=5).close()
                return
            time.sleep(0.1)
        sys.exit("Prometheus does not start")


@contextlib.contextmanager
def prometheus(folder: Path, port: int, every_s: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a port of this machine."""
    scrape = {"job_name": "profd", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    configuration = {"global": {"scrape_interval": f"{every_s}s"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    process = subprocess.Popen(
        ["prometheus", *words, f"--web.listen-address={address}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Prometheus(f"http://{address}")
        server.wait_ready()
        yield server
    finally:
        process.terminate()
        process.wait()


def measure(minutes: float, every_s: int) -> Served:
    """Serve and scrape for so long."""
    port = free_port()
    with load.running("churning", PER_SECOND) as program, tempfile.TemporaryDirectory() as folder:
        profd = Profd.attach(program.pid, Path(folder) / "run.profd", "--metrics", str(port))
        started_s = time.monotonic()
        exporter = exporter_of(profd.process.pid)
        with prometheus(Path(folder), port, every_s) as server:
            time.sleep(WARM_S)
            warm_s, warm_cpu_s, warm_scrapes = (
                time.monotonic(),
                own_cpu_s(exporter),
                server.value(_scrapes()),
            )
            time.sleep(max(started_s + minutes * 60 - time.monotonic(), 4 * every_s))
            cpu_s, now_s, scrapes = own_cpu_s(exporter), time.monotonic(), server.value(_scrapes())
            counted = f"scrape_samples_scraped[{int(now_s - warm_s)}s]"
            seen = Served(
                scrapes=int(scrapes),
                missed=int(scrapes - server.value("sum_over_time(up[1d])")),
                series=(
                    int(server.value(f"min_over_time({counted})")),
                    int(server.value(f"max_over_time({counted})")),
                ),
                slowest_s=server.value("max_over_time(scrape_duration_seconds[1d])"),
                processes=0,
                cores=cpu_s / (now_s - started_s),
                scrape_ms=(cpu_s - warm_cpu_s) / (scrapes - warm_scrapes) * 1e3,
                memory=memory_of([exporter]),
            )
        profd.end()
        with RunReader(profd.run_file) as reader:
            return seen._replace(processes=len(reader.processes))


def _scrapes() -> str:
    return "count_over_time(up[1d])"


def exporter_of(pid: int) -> int:
    """Return the process that serves the metrics of a profd.

    Ends the benchmark where there is none.
    """
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        for child in processes.children(pid):
            if "profd.daemon.metrics" in processes.command_line(child):
                return child
        time.sleep(0.02)
    sys.exit("no process serves metrics")


def free_port() -> int:
    """Return a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def version() -> str:
    """Return the version of Prometheus."""
    said = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[2]


def main() -> None:
    """Measure, write the section, and fail where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=int, default=5, metavar="S")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"try it in {QUICK_MINUTES:g} minutes; writes nothing down",
    )
    options = parser.parse_args()
    if shutil.which("prometheus") is None:
        sys.exit("prometheus is not installed: apt-get install prometheus")
    minutes = QUICK_MINUTES if options.quick else options.minutes
    seen = measure(minutes, options.every)
    print("\n".join(seen.lines()))
    if not options.quick:
        values = {
            "version": version(),
            "every": options.every,
            "minutes": minutes,
            "per_second": PER_SECOND,
        }
        write_section("Metrics", METHOD.format(**values, warm=WARM_S), seen.lines())
    sys.exit(not seen.holds)
