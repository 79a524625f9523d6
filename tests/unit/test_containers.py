"""Where a process runs, by made-up folders of /proc in the runtimes' formats, and the command that
goes there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon import processes
from profd.daemon.containers import ProcessPlace, place_of

ID = "946995504dacf6a08adac695cc576125fbdcd308b93681e5aac53fc587caaed1"
POD = "1b9f4c5e-6b0a-4c53-9f0e-52a0a7a0d001"
DISK = "rw,relatime - ext4 /dev/vda rw"
# The lines of podman 5.4 are recorded, of Debian's package.
PODMAN = f"160 154 254:0 /run/podman/vfs-containers/{ID}/userdata/hostname /etc/hostname {DISK}\n"
DOCKER = f"517 500 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname {DISK}\n"
KUBELET = (
    f"733 700 8:1 /var/lib/kubelet/pods/{POD}/containers/main/4d5e9f1c /dev/termination-log "
    f"{DISK}\n"
)
SLICE = (
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
)
STEP = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"


def sees(groups: str, mounts: str = "", **variables: str) -> tuple[str, str, dict[str, str]]:
    """Return what a process sees of its control groups and mounts, and its variables."""
    return f"{groups}\n", mounts, variables


PLACES = {
    "a machine": (sees("0::/user.slice/user-1000.slice/session-3.scope"), ProcessPlace()),
    "docker, version 1": (sees(f"4:memory:/docker/{ID}"), ProcessPlace("docker", ID)),
    "docker, by systemd": (sees(f"0::/system.slice/docker-{ID}.scope"), ProcessPlace("docker", ID)),
    "docker, from within": (sees("0::/", DOCKER), ProcessPlace("docker", ID)),
    "podman": (sees(f"0::/libpod_parent/libpod-{ID}"), ProcessPlace("podman", ID)),
    "podman, from within": (sees("0::/", PODMAN), ProcessPlace("podman", ID)),
    "podman, by its variable": (
        sees("0::/", container="podman", HOSTNAME=ID[:12]),
        ProcessPlace("podman", ID[:12]),
    ),
    "LXC": (sees("0::/lxc.payload.trainer/init.scope"), ProcessPlace("LXC", "trainer")),
    "a pod of containerd's": (
        sees(f"0::{SLICE}/cri-containerd-{ID}.scope", KUBELET, HOSTNAME="trainer-0"),
        ProcessPlace("containerd", ID, "trainer-0", "ml", "main"),
    ),
    "a pod, version 1": (
        sees(f"3:cpu:/kubepods/burstable/pod{POD}/{ID}", HOSTNAME="trainer-0"),
        ProcessPlace("containerd", ID, "trainer-0", "ml"),
    ),
    "a pod, from within": (
        sees("0::/", KUBELET, HOSTNAME="trainer-0", KUBERNETES_SERVICE_HOST="10.96.0.1"),
        ProcessPlace("Kubernetes", "", "trainer-0", "ml", "main"),
    ),
    "a step of Slurm": (sees(STEP, SLURM_JOB_ID="42"), ProcessPlace(job="42", step="0")),
    "a step of Slurm, version 1": (
        sees("9:freezer:/slurm/uid_1000/job_42/step_batch"),
        ProcessPlace(job="42", step="batch"),
    ),
    "a step of Slurm without groups": (
        sees("0::/", SLURM_JOB_ID="42", SLURM_STEP_ID="1"),
        ProcessPlace(job="42", step="1"),
    ),
}


@pytest.mark.parametrize(("seen", "place"), PLACES.values(), ids=PLACES)
def test_a_place_is_known(
    seen: tuple[str, str, dict[str, str]],
    place: ProcessPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups, mounts, variables = seen
    of = tmp_path / "7"
    secrets = of / "root/var/run/secrets/kubernetes.io/serviceaccount"
    secrets.mkdir(parents=True)
    (secrets / "namespace").write_text("ml")
    (of / "cgroup").write_text(groups)
    (of / "mountinfo").write_text(f"154 50 0:42 / / rw,relatime - overlay overlay rw\n{mounts}")
    (of / "environ").write_bytes(
        b"".join(f"{name}={value}\0".encode() for name, value in variables.items())
    )
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert place_of(7) == place


EXEC = "exec --privileged --user 0 -it 946995504dac profd attach 12"
DEBUG = (
    "debug -it -n ml pod/trainer-0 --target=main --profile=sysadmin --image=IMAGE_WITH_PROFD -- "
    "profd attach 12"
)
COMMANDS = {
    "docker": (
        ProcessPlace("docker", ID),
        f"docker {EXEC}",
        "a container of docker (946995504dac)",
    ),
    "pod": (
        ProcessPlace("containerd", ID, "trainer-0", "ml", "main"),
        f"kubectl {DEBUG}",
        "pod trainer-0 in namespace ml, container main",
    ),
    "podman, in a job": (
        ProcessPlace("podman", ID, job="42", step="0"),
        f"podman {EXEC}",
        "a container of podman (946995504dac); job 42 of Slurm, step 0",
    ),
    "docker, which one unknown": (ProcessPlace("docker"), "", "a container of docker"),
    "a machine": (ProcessPlace(), "", ""),
}


@pytest.mark.parametrize(("place", "command", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_goes_there_and_it_is_said_in_words(
    place: ProcessPlace, command: str, words: str
) -> None:
    assert (place.command(12), place.words()) == (command, words)
