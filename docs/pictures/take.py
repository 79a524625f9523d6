"""Takes the pictures of README and docs: the dashboard's views, and the report.

Usage: ``python docs/pictures/take.py``, or ``make pictures``. Needs Chromium. They show the made-up
run of ``tests/support/completerun.py``, in which each view has something to show, so they are the
same on every machine, however busy it is.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from views import draw_views

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.completerun import write_complete_run

from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader

HERE = Path(__file__).parent
DASHBOARD_SIZE = (1482, 929)
REPORT_SIZE = (1440, 1100)
CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=3000",
]


def photograph(page: Path, picture: Path, size: tuple[int, int]) -> None:
    """Open a file in Chromium and keep what it shows; ``size`` is width and height in pixels."""
    words = [
        f"--user-data-dir={page.parent}/browser",
        f"--screenshot={picture}",
        f"--window-size={size[0]},{size[1]}",
    ]
    subprocess.run([*CHROMIUM, *words, page.as_uri()], check=True, capture_output=True, timeout=60)


def take_dashboard(run_file: Path, folder: Path) -> None:
    """Take a picture of each view."""
    for view, drawn in asyncio.run(draw_views(run_file)).items():
        page = folder / f"{view}.svg"
        page.write_text(drawn)
        photograph(page, HERE / f"dashboard-{view}.png", DASHBOARD_SIZE)


def take_report(run_file: Path, folder: Path) -> None:
    """Take the picture of the report."""
    page = folder / "report.html"
    with RunReader(run_file) as reader:
        write_report(reader, page)
    photograph(page, HERE / "report.png", REPORT_SIZE)


def main() -> None:
    """Write the run, and take all pictures of it."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        run_file = write_complete_run(folder / "run.profd")
        take_dashboard(run_file, folder)
        take_report(run_file, folder)


if __name__ == "__main__":
    main()
