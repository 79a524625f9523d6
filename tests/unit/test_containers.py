"""Where a process runs, by made-up folders of /proc in the runtimes' formats, and the command that goes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from profd.daemon.containers import Place, place_of

ID = "946995504dacf6a08adac695cc576125fbdcd308b93681e5aac53fc587caaed1"
POD = "1b9f4c5e-6b0a-4c53-9f0e-52a0a7a0d001"
DISK = "rw,relatime - ext4 /dev/vda rw"
# The lines of podman 5.4 are recorded, of Debian's package.
PODMAN = f"160 154 254:0 /run/podman/vfs-containers/{ID}/userdata/hostname /etc/hostname {DISK}\n"
DOCKER = f"517 500 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname {DISK}\n"
KUBELET = f"733 700 8:1 /var/lib/kubelet/pods/{POD}/containers/main/4d5e9f1c /dev/termination-log {DISK}\n"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
STEP = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n"

PLACES = {
    "a machine": ("0::/user.slice/user-1000.slice/session-3.scope\n", "", {}, Place()),
    "docker, version 1": (f"4:memory:/docker/{ID}\n", "", {}, Place("docker", ID)),
    "docker, by systemd": (f"0::/system.slice/docker-{ID}.scope\n", "", {}, Place("docker", ID)),
    "docker, from within": ("0::/\n", DOCKER, {}, Place("docker", ID)),
    "podman": (f"0::/libpod_parent/libpod-{ID}\n", "", {}, Place("podman", ID)),
    "podman, from within": ("0::/\n", PODMAN, {}, Place("podman", ID)),
    "podman, by its variable": ("0::/\n", "", {"container": "podman", "HOSTNAME": ID[:12]}, Place("podman", ID[:12])),
    "LXC": ("0::/lxc.payload.trainer/init.scope\n", "", {}, Place("LXC", "trainer")),
    "a pod of containerd's": (
        f"0::{SLICE}/cri-containerd-{ID}.scope\n",
        KUBELET,
        {"HOSTNAME": "trainer-0"},
        Place("containerd", ID, "trainer-0", "ml", "main"),
    ),
    "a pod, version 1": (
        f"3:cpu:/kubepods/burstable/pod{POD}/{ID}\n",
        "",
        {"HOSTNAME": "trainer-0"},
        Place("containerd", ID, "trainer-0", "ml"),
    ),
    "a pod, from within": (
        "0::/\n",
        KUBELET,
        {"HOSTNAME": "trainer-0", "KUBERNETES_SERVICE_HOST": "10.96.0.1"},
        Place("Kubernetes", "", "trainer-0", "ml", "main"),
    ),
    "a step of Slurm": (STEP, "", {"SLURM_JOB_ID": "42"}, Place(job="42", step="0")),
    "a step of Slurm, version 1": (
        "9:freezer:/slurm/uid_1000/job_42/step_batch\n",
        "",
        {},
        Place(job="42", step="batch"),
    ),
    "a step of Slurm without groups": (
        "0::/\n",
        "",
        {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "1"},
        Place(job="42", step="1"),
    ),
}


@pytest.mark.parametrize(("groups", "mounts", "variables", "place"), PLACES.values(), ids=PLACES)
def test_a_place_is_known(groups: str, mounts: str, variables: dict[str, str], place: Place, tmp_path: Path) -> None:
    of = tmp_path / "7"
    secrets = of / "root/var/run/secrets/kubernetes.io/serviceaccount"
    secrets.mkdir(parents=True)
    (secrets / "namespace").write_text("ml")
    (of / "cgroup").write_text(groups)
    (of / "mountinfo").write_text(f"154 50 0:42 / / rw,relatime - overlay overlay rw\n{mounts}")
    (of / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))
    assert place_of(7, tmp_path) == place


COMMANDS = {
    "docker": (Place("docker", ID), "docker exec --privileged --user 0 -it 946995504dac profd attach 12"),
    "podman": (Place("podman", ID), "podman exec --privileged --user 0 -it 946995504dac profd attach 12"),
    "pod": (
        Place("containerd", ID, "trainer-0", "ml", "main"),
        "kubectl debug -it -n ml pod/trainer-0 --target=main --profile=sysadmin --image=IMAGE_WITH_PROFD "
        "-- profd attach 12",
    ),
    "LXC": (Place("LXC", "trainer"), ""),
    "docker, which one unknown": (Place("docker"), ""),
}


@pytest.mark.parametrize(("place", "command"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_goes_there(place: Place, command: str) -> None:
    assert place.command(12) == command


def test_a_place_is_said_in_words() -> None:
    assert Place().words() == ""
    assert Place("containerd", ID, "trainer-0", "ml", "main").words() == "pod trainer-0 in namespace ml, container main"
    assert (
        Place("podman", ID, job="42", step="0").words()
        == "a container of podman (946995504dac); job 42 of Slurm, step 0"
    )
