"""Takes the pictures of the README from a real run, the dashboard and the report; needs Chromium.

Usage: ``python docs/pictures/take.py [RUN]`` (default: latest), or ``make pictures``.
"""

from __future__ import annotations

import asyncio
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


def photograph(page: Path, picture: Path, size: str) -> None:
    """Open a file in Chromium and keep what it shows; ``size`` is ``WIDTH,HEIGHT`` in pixels."""
    words = [f"--user-data-dir={page.parent}/browser", f"--screenshot={picture}", f"--window-size={size}"]
    subprocess.run([*CHROMIUM, *words, page.as_uri()], check=True, capture_output=True, timeout=60)


def main() -> None:
    """Take both pictures."""
    run_file = paths.find_run(sys.argv[1] if len(sys.argv) > 1 else "latest")
    with tempfile.TemporaryDirectory() as folder, RunReader(run_file) as reader:
        dashboard, report = Path(folder) / "dashboard.svg", Path(folder) / "report.html"
        dashboard.write_text(asyncio.run(draw_dashboard(run_file)))
        write_report(reader, report)
        photograph(dashboard, HERE / "dashboard.png", "1482,929")
        photograph(report, HERE / "report.png", "1280,900")


if __name__ == "__main__":
    main()
