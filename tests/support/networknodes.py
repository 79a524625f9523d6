"""Nodes without machines: network namespaces on one switch, each with a host name and an address of
its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

import pytest

_NETWORK = "10.231.7"


class Lab:
    """Nodes ``node0``, ``node1`` … that reach each other and nothing else."""

    def __init__(self, count: int) -> None:
        self._prefix = f"profd{os.getpid()}"
        self.count = count

    def address(self, node: int) -> str:
        """Return the address of a node on its interface ``eth0``."""
        return f"{_NETWORK}.{node + 1}"

    def command(self, node: int, words: Sequence[str]) -> list[str]:
        """Return a command as it is run on a node."""
        named = f'hostname node{node} && exec "$@"'
        return [
            "ip",
            "netns",
            "exec",
            self._name(node),
            "unshare",
            "--uts",
            "sh",
            "-c",
            named,
            "sh",
            *words,
        ]

    def build(self) -> None:
        """Make the nodes and the switch, which is in a namespace of its own."""
        hub = f"{self._prefix}hub"
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "switch", "type", "bridge")
        _ip("-n", hub, "link", "set", "switch", "up")
        for node in range(self.count):
            name, port = self._name(node), f"port{node}"
            _ip("netns", "add", name)
            _ip(
                "-n",
                hub,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            _ip("-n", hub, "link", "set", port, "master", "switch", "up")
            _ip("-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Remove what there is of it."""
        for name in (f"{self._prefix}hub", *map(self._name, range(self.count))):
            subprocess.run(
                ["ip", "netns", "delete", name], capture_output=True, timeout=30, check=False
            )

    def _name(self, node: int) -> str:
        return f"{self._prefix}n{node}"


@contextlib.contextmanager
def built_lab(count: int) -> Iterator[Lab]:
    """Give so many nodes; skips the test where the kernel refuses them.

    It needs the marker ``requires("netns")``.
    """
    lab = Lab(count)
    try:
        try:
            lab.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        yield lab
    finally:
        lab.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=True)
