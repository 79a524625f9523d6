"""``sys.remote_exec``: who can ask whom, and what is said where asking fails. No such Python is needed for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profd.daemon.windows.injection import execute, helper_for
from profd.daemon.windows.request import WindowFailed


@pytest.mark.parametrize("version", ["3.10", "3.13", "3.13.2", "", "3"])
def test_older_and_unknown_versions_have_no_helper(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert helper_for(version, own=(3, 14)) is None


def test_own_interpreter_asks_one_of_its_own_version() -> None:
    assert helper_for("3.14", own=(3, 14), executable="/opt/python") == "/opt/python"
    assert helper_for("3.15.0", own=(3, 15, 1), executable="/opt/python") == "/opt/python"


def test_interpreter_of_another_version_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", {"python3.14": "/usr/bin/python3.14"}.get)
    assert helper_for("3.14", own=(3, 11)) == "/usr/bin/python3.14"
    assert helper_for("3.15", own=(3, 11)) is None


def fake(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o700)
    return str(path)


async def test_process_and_file_are_handed_to_the_helper(tmp_path: Path) -> None:
    said = tmp_path / "said"
    await execute(fake(tmp_path, f"open({str(said)!r}, 'w').write(repr(sys.argv))"), 7, Path("/tmp/window.py"))
    assert said.read_text().endswith("sys.remote_exec(int(sys.argv[1]), sys.argv[2])', '7', '/tmp/window.py']")


async def test_refusal_is_said_with_its_reason(tmp_path: Path) -> None:
    helper = fake(tmp_path, "sys.exit('RuntimeError: Remote debugging is not enabled in the remote process.')")
    with pytest.raises(WindowFailed, match=r"could not reach process 7 .*not enabled"):
        await execute(helper, 7, Path("/tmp/window.py"))


async def test_helper_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(WindowFailed, match="not done with process 7 within 0 s"):
        await execute(fake(tmp_path, "sys.stdin = None; import signal; signal.pause()"), 7, Path("/x"), 0.2)
