"""A script begins once profd has nothing open that is the script's alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A helper holds the gate until the script's process waits for it (a sleeping process that is still
# Python), or has begun. Whichever comes first is in the file first.
STARTING = """
import os, signal, sys, time
from profd.daemon.forks import let_go_of_all_but
from profd.daemon.launch.script import Start, fork_script
from profd.daemon.launch.signals import InheritedSignals
from profd.daemon.launch.streams import Gate

told_fd, tell_fd = os.pipe()
gate = Gate()
if os.fork() == 0:
    os.close(tell_fd)
    pid = int(os.read(told_fd, 20))
    def waits():
        comm, _, rest = open(f"/proc/{pid}/stat").read().partition("(")[2].rpartition(")")
        return comm.startswith("python") and rest.split()[0] == "S"
    while not waits() and not os.path.exists("said"):
        time.sleep(0.001)
    with open("said", "a") as said:
        said.write("let go\\n")
    let_go_of_all_but(())
    os._exit(0)
tell = lambda: os.write(tell_fd, b"%d" % os.getpid())
command = ["sh", "-c", "echo begun >> said; readlink /proc/$PPID/fd/0"]
signals = InheritedSignals(frozenset(), signal.SIG_DFL)
script = fork_script(Start(command, signals, gate=gate, take_place=tell))
os.waitpid(script.pid, 0)
"""


def test_a_script_begins_when_all_that_profd_forked_has_let_go(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTING], cwd=tmp_path, capture_output=True, text=True, check=True,
        stdin=subprocess.PIPE,
    )  # fmt: skip
    assert (tmp_path / "said").read_text() == "let go\nbegun\n"
    assert done.stdout == "/dev/null\n", "stdin is the script's alone"
