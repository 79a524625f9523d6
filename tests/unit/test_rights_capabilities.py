"""Root without its rights: the user stays, and no program that is executed gets any back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = [sys.executable, "-m", "profd.daemon.rights"]


@pytest.mark.requires("root")
def test_a_program_has_none_and_stays_who_it_was() -> None:
    told = subprocess.run([*WITHOUT, "/bin/sh", "-c", "cat /proc/self/status"], capture_output=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in told.splitlines())
    assert {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Uid"].split()[1] == str(os.geteuid())


@pytest.mark.requires("root", "setpriv")
def test_root_can_no_longer_become_another_user_nor_read_what_is_theirs_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o600)
    os.chown(theirs, 65534, 65534)
    for words in (["setpriv", "--reuid=65534", "true"], ["cat", str(theirs)]):
        assert subprocess.run(words, capture_output=True).returncode == 0
        assert subprocess.run([*WITHOUT, "/usr/bin/env", *words], capture_output=True).returncode != 0
