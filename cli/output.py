"""What commands write: a line to a person on stderr, JSON on stdout. Neither can steer the terminal that shows it."""

from __future__ import annotations

from typing import Any

import click


def say(text: str) -> None:
    """Say something to a person, on one line of stderr; what would steer the terminal is spelled out."""
    # Here and not above: `profd --help` can do without.
    from profd.daemon.render.visible import visible

    click.echo("profd: " + visible(" ".join(text.split())), err=True)


def print_json(value: Any, *, indent: int = 2) -> None:  # noqa: ANN401  whatever msgspec writes
    """Write a value to stdout as JSON, over several lines unless ``indent`` is 0."""
    import msgspec

    from profd.daemon.render.visible import visible_json

    text = msgspec.json.encode(value)
    click.echo(visible_json((msgspec.json.format(text, indent=indent) if indent else text).decode()))
