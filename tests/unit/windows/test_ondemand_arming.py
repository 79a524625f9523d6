"""The environment of a script that windows may be taken of, and the folder behind it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from support.sessions import ready

from profd.daemon import processes
from profd.daemon.windows import ondemand
from profd.daemon.windows.ondemand import Sockets, armed, sockets_of

CLIENT_SOCKET = "dynoconfigclient00000000-0000-0000-0000-000000000000"


def test_folder_is_private_short_its_own_and_gone_in_the_end() -> None:
    with armed({}) as arms:
        assert (
            stat.S_IMODE(arms.folder.stat().st_mode)
            == stat.S_IMODE(arms.folder.parent.stat().st_mode)
            == 0o700
        )
        assert len(str(arms.folder / CLIENT_SOCKET)) <= 107
        (arms.folder / "trace_1.json").touch()
    assert not arms.folder.exists()
    with armed({}) as one, armed({}) as other:
        assert one.folder != other.folder


def test_nothing_but_kinetos_variables_is_set() -> None:
    with armed({"PATH": "/bin", "SECRET": "x"}) as arms:
        assert arms.environment == {
            "KINETO_USE_DAEMON": "1",
            "KINETO_IPC_SOCKET_DIR": str(arms.folder),
            "KINETO_ONDEMAND_TRACE_DIR": str(arms.folder),
            "KINETO_CONFIG": str(arms.folder / "kineto.conf"),
            "KINETO_LOG_LEVEL": "5",
        }
        assert (
            Path(arms.environment["KINETO_CONFIG"]).read_text()
            == "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
        )


def test_what_the_user_says_of_kineto_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.conf").write_text("ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=64")
    with armed({"KINETO_CONFIG": str(tmp_path / "mine.conf"), "KINETO_LOG_LEVEL": "0"}) as arms:
        assert arms.environment["KINETO_LOG_LEVEL"] == "0"
        assert Path(arms.environment["KINETO_CONFIG"]).read_text() == (
            "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=64\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"
        )


def test_settings_that_cannot_be_read_or_a_process_that_is_gone_arm_nothing() -> None:
    with armed({"KINETO_CONFIG": "/nowhere/mine.conf"}) as arms:
        assert Path(arms.environment["KINETO_CONFIG"]).exists()
    assert sockets_of(1 << 22) is None


@pytest.mark.parametrize(
    ("variables", "sockets"),
    [
        ({}, None),
        ({"KINETO_IPC_SOCKET_DIR": "/tmp/x"}, None),
        ({"KINETO_USE_DAEMON": ""}, None),
        ({"KINETO_USE_DAEMON": "1"}, Sockets(None)),
        ({"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/tmp/x"}, Sockets(Path("/tmp/x"))),
    ],
)
def test_what_others_have_armed_is_found_in_its_environment(
    variables: dict[str, str], sockets: Sockets | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed_by = ("env", "-i", *(f"{name}={value}" for name, value in variables.items()))
    with ready([*armed_by, sys.executable, "-c", "print('ready', flush=True); input()"]) as process:
        assert sockets_of(process.pid) == sockets
        monkeypatch.setattr(ondemand, "sees_our_files", lambda pid: False)
        monkeypatch.setattr(ondemand, "_shares_network", lambda pid: False)
        assert sockets_of(process.pid) is None  # in a container


@pytest.mark.parametrize(
    ("folder", "sockets"),
    [({"KINETO_IPC_SOCKET_DIR": "/tmp/x"}, None), ({}, Sockets(None))],
    ids=["a folder", "none"],
)
def test_no_socket_is_served_in_a_folder_that_another_users_process_names(
    folder: dict[str, str], sockets: Sockets | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would make it wherever that user likes; the abstract namespace is nobody's."""
    variables = (f"{name}={value}" for name, value in {"KINETO_USE_DAEMON": "1", **folder}.items())
    with ready(
        ["env", "-i", *variables, sys.executable, "-c", "print('ready', flush=True); input()"]
    ) as process:
        monkeypatch.setattr(processes, "owner_uid", lambda pid: os.geteuid() + 1)
        assert sockets_of(process.pid) == sockets
