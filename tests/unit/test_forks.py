"""What profd forks: its name, and what it lets go of."""

from __future__ import annotations

import subprocess
import sys

from profd.daemon.forks import is_helper

RENAMING = """
import os
from profd.daemon.forks import become_helper, let_go_of_all_but
become_helper("work")
print(open("/proc/self/comm").read().strip(), open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"))
kept, gone = os.open("/dev/null", 0), os.open("/dev/null", 0)
let_go_of_all_but({1, kept})
print(os.path.exists(f"/proc/self/fd/{kept}"), os.path.exists(f"/proc/self/fd/{gone}"))
"""


def test_it_has_another_name_than_profd_and_keeps_only_what_it_needs() -> None:
    words = [sys.executable, "-c", RENAMING, "profd", "run", "--", "train.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "run-helper ['run-helper', 'work']\nTrue False\n"


CLOSING = """
import os
from profd.daemon.forks import let_go_of_all_but
own, callers = os.open("/dev/null", 0), os.open("/dev/null", 0)
os.set_inheritable(callers, True)
close, closed = os.close, []
os.close = lambda fd: (closed.append(fd), close(fd))
let_go_of_all_but({1})
print(closed.index(callers) < closed.index(own), closed.index(2) < closed.index(own))
"""


def test_it_closes_the_callers_files_first_whatever_their_numbers() -> None:
    words = [sys.executable, "-c", CLOSING]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_it_is_known_by_its_first_or_last_word() -> None:
    assert is_helper(("run-helper", "output"))
    assert is_helper(("python", "train.py", "run-helper"))
    assert not is_helper(("python", "train.py"))
    assert not is_helper(())
