"""The container, pod and Slurm job in which a process runs.

It also gives the command that runs profd there, with sufficient rights. All of it is read from
outside, from /proc: the names of control groups, the container's mounts, some variables. The
formats are those of the runtimes' sources, each named beside its use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from profd.daemon import processes

_ID = r"(?P<id>[0-9a-f]{64})"
# moby daemon/daemon_unix.go, containers/common libpod, containerd's and CRI-O's plugins of the CRI:
# the scope of systemd's driver, or the folder of the other driver.
_GROUPS = (
    ("docker", re.compile(rf"/docker[-/]{_ID}")),
    ("podman", re.compile(rf"/libpod-{_ID}")),
    ("containerd", re.compile(rf"/cri-containerd-{_ID}")),
    ("CRI-O", re.compile(rf"/crio-{_ID}")),
    ("containerd", re.compile(rf"/kubepods[^:]*/pod[^/]+/{_ID}")),
    ("LXC", re.compile(r"/lxc(?:\.payload\.|/)(?P<id>[\w.-]+)")),
    ("systemd-nspawn", re.compile(r"/machine\.slice/machine-(?P<id>[\w.\\-]+)\.scope")),
)
# A namespace of control groups hides their names. The path that the runtimes mount over
# /etc/hostname has the same id: moby container/container_unix.go, containers/storage (the folder
# userdata).
_MOUNTS = (
    ("docker", re.compile(rf"/containers/{_ID}/hostname /etc/hostname ")),
    (
        "podman",
        re.compile(rf"-containers/{_ID}/userdata/\S+ /(?:etc/hostname|run/\.containerenv) "),
    ),
)
# kubelet_getters.go: pods/UID/containers/NAME/… is mounted as the file for the termination message
# of a container.
_POD_MOUNT = re.compile(r"/pods/[0-9a-f-]{36}/containers/(?P<name>[a-z0-9-]+)/")
_POD_GROUP = re.compile(r"/kubepods\b|[/-]pod[0-9a-f]{8}[-_]")
_NAMESPACE = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
# Slurm's src/plugins/cgroup/v1 and v2: …/job_42/step_0/…
_JOB = re.compile(r"/job_(?P<job>\d+)(?:/step_(?P<step>\w+))?")
_VARIABLES = frozenset(
    {"HOSTNAME", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "SLURM_STEP_ID", "container"}
)
_MARKS = (("docker", ".dockerenv"), ("podman", "run/.containerenv"))
IMAGE = "IMAGE_WITH_PROFD"
"""Stands for an image that the user has; packaging/container builds one."""


class ProcessPlace(msgspec.Struct, frozen=True):
    """The place in which a process runs; what is unknown is empty.

    ``runtime`` is that of the container, empty outside of any container.
    """

    runtime: str = ""
    container: str = ""
    pod: str = ""
    namespace: str = ""
    pod_container: str = ""
    job: str = ""
    step: str = ""

    def words(self) -> str:
        """Return the place in words, empty if it is the machine itself."""
        found = []
        if self.pod:
            of = f" in namespace {self.namespace}" if self.namespace else ""
            found.append(
                f"pod {self.pod}{of}"
                + (f", container {self.pod_container}" if self.pod_container else "")
            )
        elif self.runtime:
            found.append(
                f"a container of {self.runtime}"
                + (f" ({self.container[:12]})" if self.container else "")
            )
        if self.job:
            found.append(f"job {self.job} of Slurm" + (f", step {self.step}" if self.step else ""))
        return "; ".join(found)

    def command(self, pid: int) -> str:
        """Return a command, given outside of the container, that attaches to a process.

        It attaches with the right to read every process. It is empty if no such command is known.
        ``pid`` is the PID inside the container.
        """
        if self.pod:
            # An ephemeral container of this profile is privileged, and --target shares the
            # processes: kubectl_debug.md.
            of = f"-n {self.namespace} " if self.namespace else ""
            target = f"--target={self.pod_container} " if self.pod_container else ""
            return (
                f"kubectl debug -it {of}pod/{self.pod} {target}--profile=sysadmin "
                f"--image={IMAGE} -- profd attach {pid}"
            )
        if self.runtime in ("docker", "podman") and self.container:
            # Only the command gets the rights, and the container runs on: docker-container-exec(1),
            # podman-exec(1).
            return (
                f"{self.runtime} exec --privileged --user 0 -it {self.container[:12]} profd "
                f"attach {pid}"
            )
        return ""

    def step_command(self, pid: int) -> str:
        """Return a command that attaches within the Slurm job, with its user and namespaces.

        It is empty outside of any job.
        """
        return f"srun --jobid={self.job} --overlap --pty profd attach {pid}" if self.job else ""


def place_of(pid: int | str) -> ProcessPlace:
    """Return the place in which a process runs, as far as /proc shows it to us."""
    of = f"{processes.PROC}/{pid}"
    groups, mounts = (processes.read_text(f"{of}/{name}") for name in ("cgroup", "mountinfo"))
    words = processes.environment(pid, _VARIABLES)
    runtime, container = _container_of(of, groups, mounts, words)
    job = _JOB.search(groups)
    place = ProcessPlace(
        runtime=runtime,
        container=container,
        job=job["job"] if job else words.get("SLURM_JOB_ID", ""),
        step=(job["step"] or "") if job else words.get("SLURM_STEP_ID", ""),
    )
    in_pod = _POD_MOUNT.search(mounts)
    if not (in_pod or _POD_GROUP.search(groups) or "KUBERNETES_SERVICE_HOST" in words):
        return place
    namespace = processes.read_text(f"{of}/root/{_NAMESPACE}").strip()
    pod = words.get("HOSTNAME") or processes.read_text(f"{of}/root/etc/hostname").strip()
    name = in_pod["name"] if in_pod else ""
    return msgspec.structs.replace(
        place, runtime=runtime or "Kubernetes", pod=pod, namespace=namespace, pod_container=name
    )


def _container_of(of: str, groups: str, mounts: str, words: Mapping[str, str]) -> tuple[str, str]:
    """Return the runtime and the id of a process's container; each is empty if it is unknown."""
    forms = [(*form, groups) for form in _GROUPS] + [(*form, mounts) for form in _MOUNTS]
    found = [
        (runtime, match["id"]) for runtime, form, text in forms if (match := form.search(text))
    ]
    marks = (runtime for runtime, mark in _MARKS if processes.read(f"{of}/root/{mark}") is not None)
    found += [(runtime, "") for runtime in marks]
    # podman, LXC and systemd-nspawn set it: systemd's CONTAINER_INTERFACE.md
    if words.get("container"):
        found.append((words["container"], ""))
    runtime, container = found[0] if found else ("", "")
    if runtime and not container and re.fullmatch(r"[0-9a-f]{12}", words.get("HOSTNAME", "")):
        container = words["HOSTNAME"]
    return runtime, container
