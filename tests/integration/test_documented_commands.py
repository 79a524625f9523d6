"""Each command that README and docs show does what it shows: here, or in the test that the table
names.

What reads runs is given made ones. What launches a script is run by bash as it stands in the
document, with a stand-in for py-spy, and scripts in the places of the tools around it. What needs a
live session, a terminal or a service is held by tests of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import documents
from support.completerun import write_complete_run
from support.documents import Command, hand_written
from support.folders import TESTS
from support.noderuns import write_folder
from support.pyspy.standin import StandIn
from support.waiting import DEADLINE_S

from profd.cli.main import run_command_line
from profd.daemon import paths
from profd.daemon.store.reader import RunReader

READING = (
    "profd ls",
    "profd summary",
    "profd summary --json",
    "profd report",
    "profd summary latest",
    "profd summary latest --gpu-idle",
    "profd summary RUN",
    "profd summary FOLDER",
    "profd report latest",
    "profd report latest -o report.html",
    "profd report RUN",
    "profd report FOLDER",
    "profd export latest --format speedscope",
    "profd export RUN --format perfetto",
    "profd export RUN --format parquet --to URL",
    "profd diff before after -o diff.html",
    "profd diff BASE NEW",
    "profd diff BASE NEW -o diff.html",
    "profd fleet URL",
    "profd window RUN --show",
    "profd window latest --show --sort cpu_total",
    "profd daemon --check",
)
MAY_FIND_FAULTS = ("profd doctor", "profd doctor PID")
"""They end with 1 where something does not work on this machine."""
ELSEWHERE: Mapping[str, str] = {
    "profd attach": "unit/cli/test_attach.py::test_without_a_pid_it_lists_what_can_be_attached_to_and_asks",
    "profd attach --headless": "unit/cli/test_attach.py::test_without_a_pid_and_a_terminal_it_lists_and_refuses",
    "profd attach PID": "integration/test_attach_terminal.py::test_attach_shows_hot_functions_and_follows_changes",
    "profd attach PID --headless": "integration/test_attach.py::test_signal_ends_the_recording_and_not_the_target",
    "profd attach PID --metrics 9400": "integration/test_metrics_run.py::test_attach_has_metrics_until_it_is_stopped",
    "profd attach '$(pgrep -f -o raylet)' --headless -o '/shared/job/$(hostname).profd'": (
        "unit/cli/test_attach.py::test_the_process_is_recorded_as_the_options_say"
    ),
    "profd daemon": (
        "integration/test_host_daemon.py::test_short_jobs_leave_a_run_each_with_reports_over_a_restart_and_a_kill"
    ),
    "profd demo": "integration/test_targets.py::test_demo_trains_sums_up_and_writes_the_report",
    "profd demo digits": "integration/test_targets.py::test_demo_without_torch_names_the_line_for_which_its_training_waits",
    "profd diff RUN RUN --to 60 --new-from 60": (
        "unit/cli/test_diff.py::test_two_ranges_of_one_run_are_compared"
    ),
    "profd dump --native": (
        "unit/cli/test_dump.py::test_native_frames_stand_above_the_python_frame_that_called_them"
    ),
    "profd dump": "unit/cli/test_dump.py::test_processes_come_first_then_their_stacks_and_json_has_every_thread",
    "profd export RUN --format tensorboard -o FOLDER": (
        "unit/exports/test_tensorboard.py::test_command_writes_the_folder"
    ),
    "profd mcp": "integration/test_mcp.py::test_an_assistant_starts_it_and_asks",
    "profd report s3://bucket/job": (
        "unit/cli/test_report.py::test_a_report_is_named_after_the_last_part_of_the_url"
    ),
    "profd run --metrics 9400 -- CMD": (
        "integration/test_metrics_run.py::test_metrics_are_there_while_the_script_runs_and_gone_with_it"
    ),
    "profd stop": "integration/test_attach.py::test_stop_from_elsewhere_ends_it",
    "profd summary FOLDER --job 10.0.0.1:29500": (
        "unit/cli/test_runs.py::test_one_of_several_jobs_must_be_named_and_left_out_files_are_listed"
    ),
    "profd view RUN": "unit/cli/test_view.py::test_view_opens_a_dashboard_that_does_not_end_the_recording",
    "profd view": "unit/cli/test_view.py::test_view_opens_a_dashboard_that_does_not_end_the_recording",
    "profd view latest": "unit/cli/test_view.py::test_view_opens_a_dashboard_that_does_not_end_the_recording",
    "profd view FOLDER": "unit/cli/test_view.py::test_of_several_nodes_one_is_chosen_from_the_list",
    **dict.fromkeys(
        (
            "profd window",
            "profd window --json",
            "profd window latest",
            "profd window latest --json",
            "profd window latest --steps 20 --by-shape",
            "profd window latest --seconds 0.5",
        ),
        "integration/test_window_run.py::test_windows_have_steps_and_operators_and_leave_the_training_bit_for_bit",
    ),
    **dict.fromkeys(
        ("profd window --inject", "profd window PID --inject", "profd window RUN --inject"),
        "integration/test_window_inject.py::test_windows_are_taken_on_demand_alone_and_change_no_bit",
    ),
}
SCRIPT = "import sys; print(*sys.argv, flush=True); sys.stdin.readline()"
TOOLS = {
    "profd": '#!/bin/sh\nexec {python} -m profd "$@"\n',
    "python": '#!/bin/sh\nexec {python} "$@"\n',
    "torchrun": '#!/bin/sh\nfor word; do case $word in *.py) exec {python} "$word" ;; esac; '
    "done; exit 1\n",
    "srun": '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done; exec "$@"\n',
    "hostname": "#!/bin/sh\necho node0\n",
    "notify": "#!/bin/sh\n",
}
"""Scripts in the places of tools: of a launcher's ranks there is one, on this machine."""
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NNODES": "1",
    "HEAD": "node0",
}
FORM = re.compile(r"\[|\.\.\.|\bCOMMAND\b|\bNAME\b")
"""What stands for any command, or for any words of one."""


def every_command() -> dict[str, Command]:
    """Return the commands that documents show with their arguments, each once."""
    shown = dict[str, Command]()
    for page in hand_written():
        for command in (*documents.shown_in_blocks(page), *documents.shown_inline(page)):
            if documents.why_refused(command.words) == "" and not FORM.search(command.text):
                shown.setdefault(command.text, command)
    return shown


EVERY = every_command()
LAUNCHING = [
    text for text, command in EVERY.items() if command.words[0] == "run" and text not in ELSEWHERE
]


@pytest.fixture
def folder(tmp_path: Path, profd_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder to work in, with runs, a job of two nodes, and a run among this user's own."""
    (profd_home / "runs").mkdir()
    write_complete_run(profd_home / "runs" / "a.profd")
    for name in ("before", "after"):
        (tmp_path / name).write_bytes((profd_home / "runs" / "a.profd").read_bytes())
    write_folder(tmp_path / "job")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_here(command: str, folder: Path) -> int:
    """Run a command of profd's in this process, with this test's things in the places of a
    document's names.
    """
    meant = {
        "RUN": "before",
        "BASE": "before",
        "NEW": "after",
        "FOLDER": "job",
        "URL": str(folder / "fleet"),
    }
    words = [{**meant, "PID": str(os.getpid())}.get(word, word) for word in EVERY[command].words]
    return run_command_line(words)


def test_each_command_that_is_shown_is_run_by_a_test() -> None:
    assert {*READING, *MAY_FIND_FAULTS, *ELSEWHERE, *LAUNCHING} == set(EVERY)


def test_tests_that_are_named_are_there() -> None:
    named = {test.partition("::")[::2] for test in ELSEWHERE.values()}
    assert (
        sorted(
            (file, test) for file, test in named if f"def {test}(" not in (TESTS / file).read_text()
        )
        == []
    )


@pytest.mark.parametrize("command", READING)
def test_what_reads_runs_ends_well(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("profd fleet"):
        assert run_here("profd export RUN --format parquet --to URL", folder) == 0
    code = run_here(command, folder)
    said = capsys.readouterr()
    assert (code, "Traceback" in said.err) == (0, False), said.err
    assert said.out + said.err != ""


@pytest.mark.parametrize("command", MAY_FIND_FAULTS)
def test_what_examines_this_machine_ends_in_words(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(command, folder) in (0, 1)
    assert capsys.readouterr().out != ""


@pytest.mark.parametrize("command", LAUNCHING)
def test_what_launches_a_script_runs_it_as_it_is_shown(
    command: str, tmp_path: Path, py_spy: StandIn, profd_home: Path
) -> None:
    for name, text in TOOLS.items():
        (tmp_path / name).write_text(text.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    for script in ("train.py", "target/ddp_mlp.py"):
        (tmp_path / script).parent.mkdir(exist_ok=True)
        (tmp_path / script).write_text(SCRIPT)
    (tmp_path / "job").mkdir()
    surroundings = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        **SLURM,
    }
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", EVERY[command].shell.replace("/shared/", f"{tmp_path}/")],
        cwd=tmp_path,
        env={**os.environ, **surroundings},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as launched:
        assert launched.stdout is not None
        first = launched.stdout.readline()
        assert "".join(first.split()[:1]).endswith(".py"), (first, *launched.communicate("\n"))
        py_spy.wait("sampling")
        _, said = launched.communicate("\n", timeout=DEADLINE_S)
    assert (launched.returncode, "Traceback" in said) == (0, False), said
    (run_file,) = [*paths.list_runs(), *tmp_path.rglob("*.profd")]
    with RunReader(run_file) as reader:
        assert (reader.info.state, reader.info.exit_code) == ("ended", 0)
