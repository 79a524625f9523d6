"""A hook of mkdocs: README is the site's first page and CHANGELOG one of its pages, with their
links set to rights.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "LICENSE": "LICENSE"}
_LINK = re.compile(r"\]\((docs/|)([^):#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository's root that the site shows."""
    for name, page in PAGES.items():
        text = (Path(config.config_file_path).parent / name).read_text()
        files.append(File.generated(config, page, content=_LINK.sub(_from_docs, text)))
    return files


def _from_docs(link: re.Match[str]) -> str:
    """Return a link from the root as one from docs/."""
    folder, path, anchor = link.groups()
    return f"]({path if folder else PAGES.get(path, path)}{anchor or ''})"
