"""The environment of a script that windows may be taken of, and the folder behind it."""

from __future__ import annotations

import stat
from pathlib import Path

from profd.daemon.windows.ondemand import armed

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


def test_settings_that_cannot_be_read_are_left_out() -> None:
    with armed({"KINETO_CONFIG": "/nowhere/mine.conf"}) as arms:
        assert Path(arms.environment["KINETO_CONFIG"]).exists()
