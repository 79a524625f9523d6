"""A real browser, and a report that is open in it: the installed Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@functools.cache
def axe_script() -> Path | None:
    """Return where npm keeps the script of axe-core, which judges pages; None if it is not there."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    root = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, check=False)
    script = Path(root.stdout.strip(), "axe-core", "axe.min.js")
    return script if script.is_file() else None


@contextlib.contextmanager
def launched_chromium() -> Iterator[BrowserContext]:
    """Give a headless Chromium, ended afterwards; its pages are 1400 by 1000 pixels."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, NAMES)))
    # In containers there is no user namespace for the sandbox; the pages are our own.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            context = browser.new_context(viewport={"width": 1400, "height": 1000})
            # The first page of a profile costs a second of CPU time, with one left open the next
            # cost a fifth.
            context.new_page()
            yield context
        finally:
            browser.close()


class ReportPage:
    """A report that is open in a browser, with all that it complained of and asked for."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.file = file
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri() + address)
        self.page.wait_for_selector("body.ready")
        self.wait_for("profd.graph.boxes !== undefined")

    def wait_for(self, condition: str) -> None:
        # Not wait_for_function: the page's policy forbids the eval that it is made of.
        self.page.evaluate(
            "async () => { while (!(" + condition + ")) await new Promise(requestAnimationFrame); }"
        )

    def shown(self, expression: str) -> Any:  # noqa: ANN401  whatever JSON can say
        """Return the value of an expression once the page has drawn what was asked for."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        return self.page.evaluate(f"() => {expression}")

    @property
    def samples(self) -> int:
        return int(self.shown("document.body.dataset.samples"))

    @property
    def address(self) -> str:
        return str(self.shown("decodeURIComponent(location.hash)"))

    def place_of(self, label: str) -> tuple[float, float]:
        """Return where a frame of the flame graph lies in the window."""
        x, y = self.shown(
            "(() => { const graph = profd.graph; const place = "
            "graph.canvas.node.getBoundingClientRect();"
            f" const box = graph.boxes.all.find((each) => graph.label(each.node) === '{label}');"
            " return [place.left + box.x + box.width / 2, place.top + box.row * 19 + 9]; })()"
        )
        return x, y

    def labels(self) -> list[str]:
        """Return the labels of the frames in the picture."""
        return list(self.shown("profd.graph.boxes.all.map((box) => profd.graph.label(box.node))"))

    def matched(self) -> list[str]:
        """Return the labels of the frames in the picture that the search found."""
        return list(
            self.shown(
                "profd.graph.boxes.all.filter((box) => profd.graph.isMatch(box.node))"
                ".map((box) => profd.graph.label(box.node))"
            )
        )

    def selected(self) -> str:
        return str(self.shown("profd.graph.label(profd.graph.selected)"))

    def zoomed(self) -> str:
        return str(self.shown("profd.graph.label(profd.graph.zoomed)"))

    def rows(self, view: str) -> list[list[str]]:
        return self.cells(f"#view-{view} tbody tr")

    def cells(self, rows: str) -> list[list[str]]:
        """Return the texts in the elements that a selector names."""
        found = self.shown(
            f"[...document.querySelectorAll('{rows}')].map((row) => [...row.children].map((cell) "
            "=> cell.textContent))"
        )
        return [list(map(str, row)) for row in found]

    def check_harmless(self) -> None:
        """See that no hostile text ran, added anything to the page, or is shown as it is."""
        assert self.shown(
            "window.hurt === undefined && document.images.length === 0 && "
            "document.scripts.length === 2"
        )
        assert not set(self.page.inner_text("body")) & set("\u202e\u2066\x1b\x00")


OpenReport = Callable[..., ReportPage]
"""Opens the report of a run, by the run's path and the address in it."""
