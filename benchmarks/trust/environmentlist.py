"""The environments in which the first command is tried: how the known program starts there, and
what attaches.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipapp
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trust.scratch import HOSTS, KNOWN, Missing, Scratch

from profd.daemon import processes

PROGRAM = str(KNOWN / "spinning.py")
PROFD = str(Path(sys.executable).with_name("profd"))
BY_USER = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
    "--",
)
IN_CHROOT = "/opt/profd/bin/profd"


class Started(NamedTuple):
    """A program that was started: the process that this waits for, and the pid that the program
    itself names.
    """

    pid: int
    own_pid: int


Words = Callable[[Scratch, Path], Sequence[str]]
"""Gives the command that starts the program, of the scratch folder and an empty folder."""
Attach = Callable[[Scratch, Started], Sequence[str]]
"""Gives the first command."""


def attach(*before: str, profd: str = PROFD, own: bool = False) -> Attach:
    """Return the first command: ``profd attach PID``, with words before it.

    ``own``: the pid that the program names.
    """
    return lambda scratch, started: (
        *before,
        profd,
        "attach",
        str(started.own_pid if own else started.pid),
    )


class Environment(NamedTuple):
    """An environment: what it is, how the program starts, the first command, and where that refuses
    its code and words.

    ``tells`` is a pattern that profd's words must have; ``ready`` is how many lines of readiness
    there are; ``root`` is where profd sees the machine's own root, ``container`` the name of the
    container that the program runs in; ``variables`` are profd's and the program's.
    """

    name: str
    words: Words
    attach: Attach = attach()
    code: int = 0
    tells: str = ""
    ready: int = 1
    root: str = ""
    container: str = ""
    variables: dict[str, str] = {}
    terminal: tuple[int, int, str] | None = None


def plain(*words: str) -> Words:
    return lambda scratch, folder: words


def pyenv(version: str) -> Words:
    return lambda scratch, folder: (scratch.python(version), PROGRAM)


def tool(*words: str, python: bool = True) -> Words:
    """Return a command of the environment with launchers: of its Python, or of another program
    beside it.
    """

    def command(scratch: Scratch, folder: Path) -> Sequence[str]:
        made = scratch.tools()
        return (
            (made.python, *words)
            if python
            else (str(Path(made.python).with_name(words[0])), *words[1:])
        )

    return command


def chroot(suite: str, python: str) -> Words:
    return lambda scratch, folder: (
        "chroot",
        str(scratch.debian(suite)),
        python,
        "/known/spinning.py",
    )


def free_threaded(scratch: Scratch, folder: Path) -> Sequence[str]:
    root, python = scratch.free_threaded()
    return ("chroot", str(root), python, "/known/spinning.py")


def archive(scratch: Scratch, folder: Path) -> Sequence[str]:
    (folder / "package").mkdir()
    shutil.copy(PROGRAM, folder / "package" / "__main__.py")
    zipapp.create_archive(folder / "package", folder / "spinning.pyz")
    return (sys.executable, str(folder / "spinning.pyz"))


def compiled(scratch: Scratch, folder: Path) -> Sequence[str]:
    shutil.copy(PROGRAM, folder / "spinning.py")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(folder)], check=True)
    (folder / "spinning.py").unlink()
    return (sys.executable, str(folder / "spinning.pyc"))


def of_uv(scratch: Scratch, folder: Path) -> Sequence[str]:
    uv = str(Path(scratch.tools().python).with_name("uv"))
    subprocess.run(
        [uv, "venv", "--quiet", "--python", scratch.python("3.12"), str(folder / "venv")],
        check=True,
    )
    return (uv, "run", "--no-project", "--python", str(folder / "venv"), PROGRAM)


def installed(by: str) -> Attach:
    """Return the first command of a profd that ``uv tool`` or pipx installs from its wheel, into an
    empty folder.
    """

    def first(scratch: Scratch, started: Started) -> Sequence[str]:
        folder = scratch.folder / f"by-{by}"
        shutil.rmtree(folder, ignore_errors=True)
        names = ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR") if by == "uv" else ("PIPX_HOME", "PIPX_BIN_DIR")
        given = {name: str(folder / name) for name in names}
        program = Path(scratch.tools().python).with_name(by)
        words = [program, *(["tool"] if by == "uv" else []), "install", scratch.wheel()]
        subprocess.run(
            words, check=True, capture_output=True, text=True, env={**os.environ, **given}
        )
        return (str(folder / names[1] / "profd"), "attach", str(started.pid))

    return first


def container(name: str, *options: str) -> Words:
    def command(scratch: Scratch, folder: Path) -> Sequence[str]:
        return scratch.container(name, "-v", f"/host{folder}:/out", *options)

    return command


def without_reading(scratch: Scratch, folder: Path) -> Sequence[str]:
    """Return a container whose profile of seccomp forbids what reads another process."""
    rule = {"names": ["process_vm_readv", "ptrace"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    (folder / "seccomp.json").write_text(
        json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})
    )
    return container("filtered", "--security-opt", f"seccomp=/host{folder}/seccomp.json")(
        scratch, folder
    )


def pid_of_container(scratch: Scratch, name: str) -> int:
    words = scratch.podman("inspect", "--format", "{{.State.Pid}}", name)
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def from_host(name: str) -> Attach:
    return lambda scratch, started: (PROFD, "attach", str(pid_of_container(scratch, name)))


def within(name: str, *options: str, weaker: bool = False) -> Attach:
    """Return the first command inside a container.

    ``weaker``: with one capability less than the program has.
    """
    before = ("setpriv", "--bounding-set=-chown", "--inh-caps=-chown", "--") if weaker else ()
    return lambda scratch, started: scratch.podman(
        "exec", *options, name, *before, IN_CHROOT, "attach", str(started.own_pid)
    )


def step_of_slurm(scratch: Scratch, folder: Path) -> Sequence[str]:
    scratch.slurm()
    return scratch.inside(
        "srun", "--quiet", "-n1", "--job-name", folder.name, "python3", "/known/spinning.py"
    )


def overlapping(scratch: Scratch, started: Started) -> Sequence[str]:
    job = processes.environment(started.own_pid, frozenset({"SLURM_JOB_ID"}))["SLURM_JOB_ID"]
    return scratch.inside(
        "srun", "--quiet", f"--jobid={job}", "--overlap", IN_CHROOT, "attach", str(started.own_pid)
    )


def raylet(scratch: Scratch, started: Started) -> Sequence[str]:
    found = subprocess.run(
        ["pgrep", "-n", "-x", "raylet"], capture_output=True, text=True
    ).stdout.split()
    if not found:
        raise Missing("no raylet runs")
    return (PROFD, "attach", found[0])


def mounted(script: str) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return what runs a command in a mount namespace of its own, after a line of shell."""
    return lambda words: ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh", *words)


def limited(scratch: Scratch, folder: Path) -> Sequence[str]:
    group = Path("/sys/fs/cgroup/cpu/profd-environments")
    if not group.parent.exists():
        raise Missing("control groups of version 1 are not mounted")
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_quota_us").write_text("60000")
    return (
        "sh",
        "-c",
        f'echo $$ >{group}/cgroup.procs && exec "$@"',
        "sh",
        sys.executable,
        PROGRAM,
    )


READ_ONLY = mounted("mount -o remount,bind,ro / 2>/dev/null || mount -o remount,ro /")
NO_SHM = mounted("umount -R /dev/shm")
CODE = f"import sys; sys.path.insert(0, {str(KNOWN)!r}); import spinning; spinning.main()"
DISTRIBUTED = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
NO_HOME = ("env", "-u", "HOME", "-u", "XDG_RUNTIME_DIR", "-u", "PROFD_HOME")

ENVIRONMENTS = [
    *(
        Environment(f"CPython {version}, pyenv", pyenv(version))
        for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
    ),
    Environment("CPython 3.14, Debian sid, in a chroot", chroot("sid", "python3.14")),
    Environment("CPython 3.15, Debian sid, in a chroot", chroot("sid", "python3.15")),
    Environment(
        "CPython 3.13t, free-threaded, built here", free_threaded, code=67, tells="free-threaded"
    ),
    Environment("CPython 3.11 of Debian, stripped", plain("/usr/bin/python3", PROGRAM)),
    Environment("CPython 3.13 of Debian, in a chroot", chroot("trixie", "python3")),
    Environment("PyPy 3.11 of Debian", chroot("trixie", "pypy3"), code=67, tells="CPython"),
    Environment(
        "python -m",
        lambda scratch, folder: ("env", f"PYTHONPATH={KNOWN}", sys.executable, "-m", "spinning"),
    ),
    Environment("python -c", plain(sys.executable, "-c", CODE)),
    Environment("a zipapp", archive),
    Environment("a .pyc without its source", compiled),
    Environment("uv run, in an environment of uv's", of_uv),
    Environment("profd by uv tool install", pyenv("3.12"), installed("uv")),
    Environment("profd by pipx install", pyenv("3.12"), installed("pipx")),
    Environment("a Jupyter kernel", tool(str(HOSTS / "notebook.py"), str(KNOWN)), attach(own=True)),
    Environment("IPython", tool("-m", "IPython", "--no-banner", "--", PROGRAM)),
    Environment(
        "torchrun, two ranks",
        tool("-m", "torch.distributed.run", "--nproc-per-node=2", PROGRAM),
        ready=2,
        variables=DISTRIBUTED,
    ),
    Environment(
        "torchrun, restarting its ranks",
        tool(
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            "--max-restarts=2",
            "--monitor-interval=0.5",
            str(HOSTS / "elastic.py"),
            str(KNOWN),
        ),
        ready=2,
        variables=DISTRIBUTED,
    ),
    Environment(
        "accelerate launch",
        tool(
            "-m",
            "accelerate.commands.launch",
            "--cpu",
            "--num_processes=1",
            "--num_machines=1",
            "--mixed_precision=no",
            "--dynamo_backend=no",
            PROGRAM,
        ),
        variables=DISTRIBUTED,
    ),
    Environment(
        "deepspeed, its launcher",
        tool(
            "deepspeed",
            "--force_multi",
            "--num_gpus=2",
            "--no_ssh",
            "--node_rank=0",
            "--master_addr=127.0.0.1",
            PROGRAM,
            python=False,
        ),
        ready=2,
        variables={**DISTRIBUTED, "DS_ACCELERATOR": "cpu"},
    ),
    Environment(
        "Lightning's Trainer",
        tool(str(HOSTS / "lightning_fit.py"), str(KNOWN)),
        variables=DISTRIBUTED,
    ),
    Environment(
        "Ray Train, two workers with gloo",
        tool(str(HOSTS / "ray_train.py"), str(KNOWN)),
        raylet,
        ready=2,
        variables={**DISTRIBUTED, "RAY_DEDUP_LOGS": "0", "RAY_TRAIN_V2_ENABLED": "1"},
    ),
    *(
        Environment(
            f"multiprocessing by {method}, the child",
            plain(sys.executable, str(HOSTS / "processes.py"), str(KNOWN), method),
            attach(own=True),
        )
        for method in ("fork", "spawn", "forkserver")
    ),
    Environment(
        "multiprocessing, the parent that waits",
        plain(sys.executable, str(HOSTS / "processes.py"), str(KNOWN), "spawn"),
    ),
    Environment("setproctitle", tool(str(HOSTS / "retitled.py"), str(KNOWN))),
    Environment(
        "threads past `threading`", plain(sys.executable, str(KNOWN / "outside.py"), str(KNOWN))
    ),
    Environment(
        "threads past `threading`, CPython 3.14",
        lambda scratch, folder: (
            "chroot",
            str(scratch.debian("sid")),
            "python3.14",
            "/known/outside.py",
            "/known",
        ),
    ),
    Environment("a step of Slurm, from its node", step_of_slurm, attach(own=True)),
    Environment("a step of Slurm, by srun --overlap", step_of_slurm, overlapping, root="/host"),
    Environment(
        "a podman container, from within",
        container("within"),
        within("within"),
        root="/out",
        container="within",
    ),
    Environment(
        "a podman container, from the host",
        container("outside"),
        from_host("outside"),
        container="outside",
    ),
    Environment(
        "a podman container, as another user of it",
        container("other"),
        within("other", "--user", "1000"),
        code=68,
        tells="podman exec",
        root="/out",
        container="other",
    ),
    Environment(
        "that, by its remedy: as root",
        container("mended"),
        within("mended", "--user", "0"),
        root="/out",
        container="mended",
    ),
    Environment(
        "a podman container, with fewer capabilities",
        container("fewer"),
        within("fewer", weaker=True),
        code=70,
        tells="podman exec --privileged",
        root="/out",
        container="fewer",
    ),
    Environment(
        "that, by its remedy: privileged",
        container("given"),
        within("given", "--privileged"),
        root="/out",
        container="given",
    ),
    Environment(
        "a PID namespace, from outside",
        plain("unshare", "--pid", "--fork", "--mount-proc", sys.executable, PROGRAM),
    ),
    Environment(
        "seccomp forbids reading",
        plain(sys.executable, PROGRAM),
        attach(sys.executable, str(HOSTS / "filtered.py")),
        code=70,
        tells="seccomp",
    ),
    Environment(
        "a podman container whose seccomp forbids reading",
        without_reading,
        within("filtered"),
        code=70,
        tells="--security-opt seccomp=unconfined",
        root="/out",
        container="filtered",
    ),
    Environment(
        "that, by its remedy: seccomp=unconfined",
        container("unconfined", "--security-opt", "seccomp=unconfined"),
        within("unconfined"),
        root="/out",
        container="unconfined",
    ),
    Environment(
        "root's process, as another user",
        plain(sys.executable, PROGRAM),
        attach(*BY_USER),
        code=68,
        tells="sudo",
    ),
    Environment("another user's process, as root", plain(*BY_USER, "/usr/bin/python3", PROGRAM)),
    Environment("a limit of 0.6 cores", limited),
    Environment(
        "a read-only root",
        lambda scratch, folder: READ_ONLY((sys.executable, PROGRAM)),
        lambda scratch, started: READ_ONLY((PROFD, "attach", str(started.pid))),
        code=73,
        tells="PROFD_HOME|-o FILE",
    ),
    Environment(
        "no home and no runtime folder", plain(*NO_HOME, sys.executable, PROGRAM), attach(*NO_HOME)
    ),
    Environment(
        "no /dev/shm",
        lambda scratch, folder: NO_SHM((sys.executable, PROGRAM)),
        lambda scratch, started: NO_SHM((PROFD, "attach", str(started.pid))),
    ),
    Environment(
        "the locale C",
        plain(sys.executable, PROGRAM),
        variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    Environment(
        "a terminal of 80 by 24 without colors",
        plain(sys.executable, PROGRAM),
        terminal=(80, 24, "vt100"),
        variables={"NO_COLOR": "1"},
    ),
    Environment(
        "a shell",
        plain("sh", "-c", "echo ready $$; while :; do sleep 1; done"),
        code=66,
        tells="not Python|is sh",
    ),
]

UNTRIED = {
    "Yama's ptrace_scope above 0": "this machine's kernel has no Yama; its remedies are tested "
    "with a made-up system",
    "SELinux, AppArmor": "this machine's kernel has neither; the same",
    "a pod of Kubernetes": "no kubelet can be had here; what its files say is tested with "
    "made-up ones",
    "Docker": "it needs iptables and control groups that this machine lacks; podman stands for it",
    "musl, Alpine's own Python": "Alpine's packages cannot be reached; CPython's configure "
    "refuses Debian's musl-gcc",
    "a static CPython": "it was to be the one with musl",
    "conda": "its channels cannot be reached",
    "aarch64": "there is no such machine here",
    "CPython 3.14.5 and 3.14.6": "Debian has 3.14.10 only",
}


def environments() -> list[Environment]:
    return ENVIRONMENTS


def own_pid(line: str) -> int | None:
    """Return the pid in a line of readiness, 0 where it is without one; None of any other line."""
    found = re.search(r"\bready\b ?(\d+)?", line)
    return None if found is None else int(found[1] or 0)


def wait_for_ready(
    process: subprocess.Popen[str], lines: int, within_s: float
) -> tuple[int, list[str]]:
    """Wait until a program has said so many times that it is ready.

    Return the pid it named and what else it said.
    """
    assert process.stdout is not None
    said, deadline, pid = [], time.monotonic() + within_s, 0
    os.set_blocking(process.stdout.fileno(), True)
    while lines and time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        said.append(line)
        found = own_pid(line)
        if found is not None:
            pid, lines = found or pid, lines - 1
    if lines:
        raise Missing(
            "the program did not start: " + " | ".join(line.strip() for line in said[-4:])[-300:]
        )
    return pid, said
