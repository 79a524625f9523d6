"""Since when a process may have read its code, and which file a relative name of it means."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.interpreters import standing
from support.present import there
from support.waiting import until

from profd.daemon import processes
from profd.daemon.clock import MILLISECOND_NS
from profd.daemon.stacks.origin import ANY, Origin, origin_of
from profd.daemon.stacks.source import SourceTree
from profd.daemon.steps.declared import Declared
from profd.daemon.store.records import CHANGED_SOURCE, Frame
from profd.daemon.userfiles import Changed, UserFiles

TEXT = "def load():\n    sleep(1)\n"
OTHER = "# the next experiment\ndef load():\n    backward()\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    made = tmp_path / "train.py"
    made.write_text(TEXT)
    return made


def changed_ns(path: Path) -> int:
    return path.lstat().st_ctime_ns


def later_than(path: Path, before_ns: int, change: str = "") -> None:
    """Wait until what is written now is younger than a time: the clock of file systems has ticks."""
    probe = path.with_name("probe")

    def has_ticked() -> bool:
        probe.write_text(change)
        return changed_ns(probe) > before_ns

    until(has_ticked, "a tick of the file system's clock")


def in_place(path: Path) -> None:
    path.write_text(OTHER)


def set_back(path: Path) -> None:
    """Write another text, as ``cp -p`` does of an old file."""
    path.write_text(OTHER)
    os.utime(path, (1, 1))


def renamed(path: Path) -> None:
    path.with_name("next.py").write_text(OTHER)
    path.with_name("next.py").replace(path)


@pytest.mark.parametrize("edit", [in_place, set_back, renamed])
def test_a_file_that_changed_after_the_start_is_not_what_runs(script: Path, edit: object) -> None:
    started_ns = changed_ns(script)
    later_than(script, started_ns)
    assert callable(edit)
    edit(script)
    tree, other = (
        SourceTree(UserFiles(), origin=Origin(at_ns)) for at_ns in (started_ns, changed_ns(script))
    )
    found = tree.describe(Frame("load", str(script), 2))
    assert (found.source, found.module_path, found.is_library) == (
        CHANGED_SOURCE,
        "train.py",
        False,
    )
    assert tree.line(str(script), 2) is None
    assert tree.lines(str(script)) == [""]
    assert other.describe(Frame("load", str(script), 3)).source == "backward()"
    assert SourceTree().line(str(script), 3) == "backward()"


def test_a_link_that_leads_elsewhere_since_the_start_leads_to_another_text(tmp_path: Path) -> None:
    for name, text in (("1", TEXT), ("2", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(text)
    current = tmp_path / "current"
    current.symlink_to("1")
    started_ns = max(changed_ns(current), changed_ns(tmp_path / "2" / "train.py"))
    file = str(current / "train.py")
    assert SourceTree(origin=Origin(started_ns)).line(file, 2) == "sleep(1)"
    later_than(current, started_ns)
    current.unlink()
    current.symlink_to("2")
    assert (
        SourceTree(origin=Origin(started_ns)).describe(Frame("load", file, 2)).source
        == CHANGED_SOURCE
    )


def test_another_name_for_a_file_in_another_folder_does_not_change_it(script: Path) -> None:
    """Installers link the files of one cache into many places, by which each of them is touched."""
    started_ns = changed_ns(script)
    later_than(script, started_ns)
    later_than(script, changed_ns(script.parent))
    (script.parent / "elsewhere").mkdir()
    started_ns = changed_ns(script.parent)
    later_than(script, started_ns)
    (script.parent / "elsewhere" / "train.py").hardlink_to(script)
    assert changed_ns(script) > started_ns
    assert SourceTree(origin=Origin(started_ns)).line(str(script), 2) == "sleep(1)"
    script.write_text(OTHER)
    assert SourceTree(origin=Origin(started_ns)).line(str(script), 2) is None


def test_what_was_read_before_a_change_stays_the_text_of_who_runs_it_alone(script: Path) -> None:
    files, started_ns = UserFiles(), changed_ns(script)
    assert files.kept(str(script), started_ns) == TEXT.encode()
    later_than(script, started_ns)
    script.write_text(OTHER)
    assert files.kept(str(script), started_ns) == TEXT.encode()
    assert files.kept(str(script), changed_ns(script)) == OTHER.encode()
    with pytest.raises(Changed):  # of the older text nothing is left
        files.kept(str(script), started_ns)


def test_loops_of_a_file_that_changed_are_not_known(script: Path) -> None:
    script.write_text("def train():\n    for step in range(9):\n        backward()\n")
    started_ns = changed_ns(script)
    assert Declared(origin=Origin(started_ns)).function_at(str(script), "train", 3).loops
    assert not Declared(origin=Origin(started_ns - 1)).function_at(str(script), "train", 3).loops


def test_a_script_that_was_written_just_before_its_start_is_what_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ready', flush=True)\ninput()\n")
    with subprocess.Popen([sys.executable, script], stdin=-1, stdout=-1) as running:
        assert there(running.stdout).readline() == b"ready\n"
        since_ns = there(origin_of(running.pid).since_ns)
        assert since_ns >= changed_ns(script)
        later_than(script, since_ns)
        in_place(script)
        assert SourceTree(origin=origin_of(running.pid)).line(str(script), 1) is None
        running.communicate(b"\n")


def test_a_forked_process_runs_the_code_of_its_parent() -> None:
    program = (
        "\nimport os, time\ntime.sleep(0.05)\nif os.fork():\n    os.wait()\nelse:\n    ready()"
    )
    with standing(program) as parent:
        (child,) = processes.children(parent.pid)
        ages = [there(processes.read_stat(pid)).start_ticks for pid in (parent.pid, child)]
        assert ages[0] < ages[1]
        parents_ns, childs_ns = (there(origin_of(pid).since_ns) for pid in (parent.pid, child))
        assert abs(parents_ns - childs_ns) < MILLISECOND_NS


def test_a_process_that_was_seen_to_begin_a_program_is_as_old_as_that() -> None:
    assert origin_of(os.getpid(), exec_ns=17).since_ns == 17
    assert origin_of(1 << 30) == ANY


def test_a_relative_name_means_the_file_in_the_folder_of_the_start(script: Path) -> None:
    elsewhere = script.parent / "elsewhere"
    elsewhere.mkdir()
    tree = SourceTree(origin=Origin(None, (str(script.parent), str(elsewhere))))
    for name in ("train.py", "./train.py", "elsewhere/../train.py"):
        found = tree.describe(Frame("load", name, 2))
        assert (found.source, found.module_path) == ("sleep(1)", "train.py"), name
        assert tree.absolute(name) == str(script)
    (elsewhere / "train.py").write_text(OTHER)
    unclear = SourceTree(origin=Origin(None, (str(script.parent), str(elsewhere))))
    assert (unclear.line("train.py", 2), unclear.absolute("train.py")) == (None, "train.py")
    assert SourceTree(origin=Origin(None, (str(elsewhere),))).line("train.py", 3) == "backward()"
    assert SourceTree().describe(Frame("load", "train.py", 2)).source is None


def test_the_folder_of_the_start_is_what_was_known_then_or_what_a_shell_said(
    tmp_path: Path,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    chdir = (
        f"import os\nos.chdir({str(tmp_path / 'elsewhere')!r})\nprint('ready', flush=True)\ninput()"
    )
    own = {**os.environ, "PWD": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", chdir], stdin=-1, stdout=-1, cwd=tmp_path, env=own
    ) as running:
        assert there(running.stdout).readline() == b"ready\n"
        assert origin_of(running.pid).folders == (str(tmp_path), str(tmp_path / "elsewhere"))
        assert origin_of(running.pid, folder=str(tmp_path)).folders == (str(tmp_path),)
        running.communicate(b"\n")
