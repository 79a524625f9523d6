"""The places that environments need: Debian chroots, a Python built here, launchers, a container, a
node of Slurm.

All lies in one folder outside of the repository, is made once, and takes some 20 minutes and 3 GB
the first time. What cannot be had here raises ``Missing``.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from common.environment import BUILT_HERE, LAUNCHERS, Environment, make_environment
from support.folders import BENCHMARKS, ROOT

KNOWN = BENCHMARKS / "truth" / "known"
HOSTS = Path(__file__).with_name("hosts")
_VALID = 'Acquire::Check-Valid-Until "false";\n'
_TRIXIE = (
    "python3",
    "python3-venv",
    "pypy3",
    "podman",
    "crun",
    "slurmctld",
    "slurmd",
    "slurm-client",
    "munge",
    "procps",
)
_SID = (
    "python3.14",
    "python3.15",
    "gcc",
    "libc6-dev",
    "make",
    "zlib1g-dev",
    "libffi-dev",
    "pkg-config",
)
_SOURCE = "Python-3.13.5"
# Enters a chroot as a container runtime wants it: the root of a mount namespace, with control
# groups of version 2.
_ENTER = """
mount --make-rprivate / && mount --bind "$0" "$0"
for name in proc sys dev; do mount --rbind /$name "$0/$name"; done
umount -R "$0/sys/fs/cgroup" 2>/dev/null; mount -t cgroup2 none "$0/sys/fs/cgroup"
mkdir -p "$0/host" "$0/.old" && mount --bind / "$0/host"
cd "$0" && pivot_root . .old && exec chroot . sh -c 'umount -l /.old; exec sleep infinity'
"""
_SLURM = """ClusterName=one
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurm
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName={host} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""


class Missing(Exception):
    """An environment cannot be had here; the text says why."""


class Scratch:
    """What the environments are made of, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._holder: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End what runs in the container's host, and the host itself."""
        if self._holder is not None:
            self._run(
                *self.inside("sh", "-c", "kill $(cat /run/slurm*.pid /run/munge/munged.pid)"),
                check=False,
            )
            self._holder.kill()
            self._holder.wait()

    def python(self, version: str) -> str:
        """Return pyenv's Python of a version."""
        found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
        if not found:
            raise Missing(f"pyenv has no Python {version}")
        return str(found[-1])

    def tools(self) -> Environment:
        """Return the virtual environment with launchers and notebooks, beside the torch of the one
        that runs this.
        """
        with self._lock:
            return make_environment(self.folder, "launchers", LAUNCHERS, BUILT_HERE)

    def wheel(self) -> Path:
        """Return profd's wheel, built of the working tree."""
        return self._wheel

    @functools.cached_property
    def _wheel(self) -> Path:
        into = self.folder / "wheel"
        shutil.rmtree(into, ignore_errors=True)
        self._run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(into),
            str(ROOT),
        )
        return next(into.glob("*.whl"))

    def debian(self, suite: str) -> Path:
        """Return a chroot of a Debian: trixie with container tools, Slurm and profd in its own
        Python, or sid.
        """
        with self._lock:
            return self._debian(suite)

    @functools.cache  # noqa: B019  one a process
    def _debian(self, suite: str) -> Path:
        root = self.folder / suite
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise Missing("takes root and debootstrap")
        if not (root / "made").exists():
            script, mirror = "/usr/share/debootstrap/scripts/sid", "http://deb.debian.org/debian"
            words = [
                "debootstrap",
                "--variant=minbase",
                "--include=ca-certificates",
                suite,
                str(root),
                mirror,
                script,
            ]
            self._run(*words)
            (root / "etc/apt/apt.conf.d/99valid").write_text(_VALID)
            packages = " ".join(_TRIXIE if suite == "trixie" else _SID)
            install = (
                f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {packages}"
            )
            self._run("chroot", str(root), "sh", "-c", f"DEBIAN_FRONTEND=noninteractive; {install}")
            (root / "made").touch()
        if suite == "trixie":
            self._install_profd(root)
        shutil.rmtree(root / "known", ignore_errors=True)
        shutil.copytree(KNOWN, root / "known")
        return root

    def _install_profd(self, root: Path) -> None:
        for file in ("etc/pip.conf", "etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
            if Path("/", file).exists():
                shutil.copy(Path("/", file), root / file)
        shutil.copy(self._wheel, root / "tmp")
        pip = (
            "/opt/profd/bin/pip install --quiet --force-reinstall --no-deps "
            f"/tmp/{self._wheel.name}"
        )
        first = (
            "python3 -m venv /opt/profd && /opt/profd/bin/pip install --quiet "
            f"/tmp/{self._wheel.name}"
        )
        self._run("chroot", str(root), "sh", "-c", f"test -d /opt/profd && {pip} || {{ {first}; }}")

    def free_threaded(self) -> tuple[Path, str]:
        """Return the chroot with a free-threaded Python, built there of Debian's source, and the
        path of that in it.
        """
        root, python = self.debian("sid"), "/opt/free-threaded/bin/python3.13"
        with self._lock:
            if not (root / python[1:]).exists():
                self._fetch_source(root)
                script = (
                    f"mkdir -p /src/x && cd /src/x && ../{_SOURCE}/configure -q --disable-gil "
                    "--without-ensurepip --disable-test-modules --prefix=/opt/free-threaded "
                    "&& make -s -j2 && make -s install"
                )
                self._run("chroot", str(root), "sh", "-c", script, check=False)
        if not (root / python[1:]).exists():
            raise Missing("it could not be built here")
        return root, python

    def _fetch_source(self, root: Path) -> None:
        if (root / "src" / _SOURCE).exists():
            return
        state = self.folder / "source"
        (state / "lists/partial").mkdir(parents=True, exist_ok=True)
        (state / "list").write_text("deb-src http://deb.debian.org/debian trixie main\n")
        options = [
            f"-oDir::Etc::sourcelist={state}/list",
            "-oDir::Etc::sourceparts=-",
            f"-oDir::State::lists={state}/lists",
        ]
        self._run("apt-get", *options, "-oAcquire::Check-Valid-Until=false", "update", "-qq")
        self._run("apt-get", *options, "source", "--download-only", "-qq", "python3.13", cwd=state)
        (root / "src").mkdir(exist_ok=True)
        self._run("tar", "xf", str(next(state.glob("*.orig.tar.xz"))), "-C", str(root / "src"))

    def inside(self, *words: str) -> list[str]:
        """Return a command as it runs on the container's host: trixie, in a mount namespace of its
        own.
        """
        root = self.debian("trixie")
        with self._lock:
            if self._holder is None:
                self._holder = subprocess.Popen(
                    ["unshare", "--mount", "bash", "-c", _ENTER, str(root)]
                )
                deadline = time.monotonic() + 20
                while Path(f"/proc/{self._holder.pid}/comm").read_text() != "sleep\n":
                    if time.monotonic() > deadline or self._holder.poll() is not None:
                        raise Missing("a mount namespace cannot be entered here")
                    time.sleep(0.05)
        return ["nsenter", "--target", str(self._holder.pid), "--mount", *words]

    def podman(self, *words: str) -> list[str]:
        """Return a command of podman's."""
        store = ("--root", "/var/tmp/podman", "--runroot", "/run/podman", "--storage-driver", "vfs")
        return self.inside("podman", *store, "--cgroup-manager", "cgroupfs", *words)

    def container(self, name: str, *options: str) -> list[str]:
        """Return the command that runs the known program in a container, with podman's default
        profile of seccomp.
        """
        self.debian("trixie")
        run = (
            "run",
            "--rm",
            "--replace",
            "--name",
            name,
            "--network",
            "none",
            "--pids-limit",
            "0",
            *options,
        )
        # The container's root is the host's own chroot, seen through an overlay that is dropped
        # with it.
        return self.podman(
            *run,
            "--rootfs",
            "/host" + str(self.folder / "trixie") + ":O",
            "python3",
            "/known/spinning.py",
        )

    def slurm(self) -> None:
        """Start a Slurm of one node on the container's host."""
        with self._lock:
            self._slurm()

    @functools.cache  # noqa: B019  one a process
    def _slurm(self) -> None:
        root = self.debian("trixie")
        (root / "etc/slurm").mkdir(exist_ok=True)
        host = os.uname().nodename
        (root / "etc/slurm/slurm.conf").write_text(_SLURM.format(host=host))
        (root / "etc/slurm/cgroup.conf").write_text("CgroupPlugin=disabled\n")
        script = (
            f"grep -qw {host} /etc/hosts || echo 127.0.0.1 {host} >>/etc/hosts; mkdir -p "
            "/var/spool/slurm /run/munge; test -s /etc/munge/munge.key || (dd if=/dev/urandom "
            "of=/etc/munge/munge.key bs=1024 count=1 2>/dev/null); chown -R munge: /etc/munge "
            "/run/munge /var/lib/munge /var/log/munge; chmod 400 /etc/munge/munge.key; runuser -u "
            "munge -- munged; slurmctld; slurmd"
        )
        said = self._run(*self.inside("sh", "-c", script), check=False)
        for _ in range(40):
            idle = self._run(*self.inside("sinfo", "-h", "-o", "%t"), check=False)
            if idle.stdout.strip() in ("idle", "mix", "alloc"):
                return
            time.sleep(0.5)
        raise Missing(f"slurmd does not come up: {(said.stderr or idle.stdout).strip()[:200]}")

    def _run(
        self, *words: str, check: bool = True, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, check=check, capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL
        )
