"""A hook of mkdocs: README is the site's first page, and other files of the repository's root are
pages of it.

Their links, and the links of other pages to them, are set to rights.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "LICENSE": "LICENSE",
}
_LINK = re.compile(r"\]\((docs/|)([^):#]+)(#[^)]*)?\)")
_UP = re.compile(rf"\]\(\.\./({'|'.join(map(re.escape, PAGES))})(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository's root that the site shows."""
    for name, page in PAGES.items():
        text = (Path(config.config_file_path).parent / name).read_text()
        files.append(File.generated(config, page, content=_LINK.sub(_from_docs, text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links from docs/ to files of the root to the pages that these have here."""
    return _UP.sub(lambda link: f"]({PAGES[link[1]]}{link[2] or ''})", markdown)


def _from_docs(link: re.Match[str]) -> str:
    """Return a link from the root as one from docs/."""
    folder, path, anchor = link.groups()
    return f"]({path if folder else PAGES.get(path, path)}{anchor or ''})"
