"""One HTML file out of a template, a style sheet, scripts and data, which needs nothing else and runs nothing else.

All text of a run is taken for hostile. The template escapes it, the data travel as base64, the scripts make text nodes
of it, and the policy of the page lets nothing run or load but the one script and the one style sheet put in here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import jinja2
import markupsafe
import msgspec

from profd.daemon.render.packing import pack

PAGE = Path(__file__).with_name("page")


def render_page(template: str, scripts: Sequence[str], data: msgspec.Struct, **words: object) -> str:
    """Return a page of the folder ``page`` as HTML.

    ``scripts`` are in the order of their use: each may name what stands in one before it. ``words`` are what the
    template says, ``data`` what the scripts decode.
    """
    script = '"use strict";(() => {\n' + "\n".join(_read(name) for name in scripts) + "\n})();"
    style = _read("report.css")
    return _template(template).render(
        style=markupsafe.Markup(style),
        policy=markupsafe.Markup(_policy(style, script)),
        script=markupsafe.Markup(script),
        packed=pack(data),
        **words,
    )


def render_part(template: str, **words: object) -> markupsafe.Markup:
    """Return a part of a page, from a template of its own in the folder ``page``."""
    return markupsafe.Markup(_template(template).render(**words))


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_read(name))


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows an inline style and an inline script, and nothing else."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
