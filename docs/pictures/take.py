"""Takes the pictures of README and docs from a real training: the dashboard's views, the report.

Usage: ``python docs/pictures/take.py [dashboard] [report]``, or ``make pictures``; both by default.
Needs torch and Chromium, and about two minutes of a quiet machine: a busy one shows in the
pictures.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
from pathlib import Path

from training import training
from views import draw_views

from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader

HERE = Path(__file__).parent
KINDS = {"dashboard", "report"}
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
    """Take what is asked for: the dashboard while the training runs, the report when it has ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pictures", nargs="*", metavar="PICTURE", help="dashboard or report [default: both]"
    )
    wanted = set(parser.parse_args().pictures) or KINDS
    if unknown := wanted - KINDS:
        parser.error(f"there is no picture of {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, training(Path(name)) as made:
        run_file = made.dress()
        if "dashboard" in wanted:
            take_dashboard(run_file, Path(name))
        if "report" in wanted:
            take_report(made.finish(), Path(name))


if __name__ == "__main__":
    main()
