"""Takes the pictures of the README from a real run, the dashboard and the report; needs Chromium and torch.

Usage: ``python docs/pictures/take.py [dashboard] [report] [--run RUN]``, or ``make pictures``; both by default.
Without ``--run`` a training is recorded for it, about a minute: from the repository's root, in a home of its own, so
that no path of the machine is in the pictures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from profd.daemon import paths
from profd.daemon.render.report import write_report
from profd.daemon.store.reader import RunReader
from profd.tui.app import ProfdApp
from profd.tui.widgets.verdict import VerdictLine

HERE = Path(__file__).parent
TRAINING = ("python", "target/cifar_resnet18.py", "--steps", "200")
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


def record(folder: Path) -> Path:
    """Record a training and return its run."""
    run_file = folder / "cifar_resnet18.profd"
    environment = {
        **os.environ,
        "PROFD_HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
    }
    words = ["run", "--headless", "--quiet", "-o", str(run_file), "--", *TRAINING]
    subprocess.run([sys.executable, "-m", "profd", *words], cwd=HERE.parents[1], env=environment, check=True)
    return run_file


async def draw_dashboard(run_file: Path) -> str:
    """Return the dashboard on a run, 120 columns by 36 rows, as SVG."""
    app = ProfdApp(run_file, may_end=False)
    async with app.run_test(size=(120, 36)) as pilot:
        deadline = time.monotonic() + 20
        while not ((shown := app.screen.query_one(VerdictLine).snapshot) and shown.is_diagnosed):
            if time.monotonic() > deadline:
                raise SystemExit("the dashboard showed nothing within 20 s")
            await pilot.pause(0.1)
        await pilot.pause()
        return app.export_screenshot(title="profd attach")


def photograph(page: Path, picture: Path, size: tuple[int, int]) -> None:
    """Open a file in Chromium and keep what it shows; ``size`` is width and height in pixels."""
    words = [f"--user-data-dir={page.parent}/browser", f"--screenshot={picture}", f"--window-size={size[0]},{size[1]}"]
    subprocess.run([*CHROMIUM, *words, page.as_uri()], check=True, capture_output=True, timeout=60)


def take_dashboard(run_file: Path, folder: Path) -> None:
    """Take the picture of the dashboard."""
    page = folder / "dashboard.svg"
    page.write_text(asyncio.run(draw_dashboard(run_file)))
    photograph(page, HERE / "dashboard.png", (1482, 929))


def take_report(run_file: Path, folder: Path) -> None:
    """Take the picture of the report."""
    page = folder / "report.html"
    with RunReader(run_file) as reader:
        write_report(reader, page)
    photograph(page, HERE / "report.png", REPORT_SIZE)


PICTURES = {"dashboard": take_dashboard, "report": take_report}


def main() -> None:
    """Take the pictures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"{' or '.join(PICTURES)} [default: both]")
    parser.add_argument("--run", metavar="RUN", help="a run that is there already")
    options = parser.parse_args()
    if unknown := set(options.pictures) - PICTURES.keys():
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        run_file = paths.find_run(options.run) if options.run else record(Path(folder))
        for name in options.pictures or PICTURES:
            PICTURES[name](run_file, Path(folder))


if __name__ == "__main__":
    main()
