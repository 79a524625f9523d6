"""The Dockerfile and the DaemonSet: accepted by hadolint and by the schema of Kubernetes, and able
to read.
"""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.folders import ROOT

from profd.daemon.service.configuration import decode

DOCKERFILE = ROOT / "packaging" / "container" / "Dockerfile"
BIN = Path(sys.executable).parent
KUBERNETES = ROOT / "packaging" / "kubernetes"


def test_hadolint_finds_nothing_wrong() -> None:
    linted = subprocess.run([BIN / "hadolint", str(DOCKERFILE)], capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("name", ["daemonset", "sidecar"])
def test_what_kubernetes_gets_fits_its_schema(name: str) -> None:
    manifest = KUBERNETES / f"{name}.yaml"
    validated = subprocess.run(
        [BIN / "kubernetes-validate", "--strict", str(manifest)], capture_output=True, text=True
    )
    assert (validated.returncode, validated.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "role", "sees"),
    [
        ("daemonset", "containers", "hostPID"),
        ("sidecar", "initContainers", "shareProcessNamespace"),
    ],
)
def test_profd_sees_and_reads_the_processes_of_others(name: str, role: str, sees: str) -> None:
    *_, workload = yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text())
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod[role]
    assert "memory" in container["resources"]["limits"]
    assert pod[sees]
    assert "SYS_PTRACE" in container["securityContext"]["capabilities"]["add"]
    assert container["volumeMounts"][0]["mountPath"] == container["env"][0]["value"]


def test_the_sidecar_serves_metrics_at_the_port_that_it_names() -> None:
    settings, job = yaml.safe_load_all((KUBERNETES / "sidecar.yaml").read_text())
    understood = decode(settings["data"]["daemon.toml"].encode(), "daemon.toml")
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    assert understood.metrics == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    (file,) = settings["data"]
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert container["command"][-1] == f"{mounted['settings']}/{file}"


FOLDER = ROOT / "packaging" / "systemd"
UNITS = sorted(FOLDER.glob("*/profd.service"))
TIMEOUT_S = 60
FORBIDDEN = (
    "PrivateUsers",
    "ProtectProc",
    "PrivateDevices",
    "ProtectClock",
    "MemoryDenyWriteExecute",
    "DynamicUser",
)
"""With these, processes of others, GPUs or ctypes are out of reach."""


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]


def test_one_unit_is_for_users_and_one_for_the_system_which_may_become_whose_files_it_reads() -> (
    None
):
    assert [unit.parent.name for unit in UNITS] == ["system", "user"]
    rights = service(FOLDER / "system" / "profd.service")["CapabilityBoundingSet"].split()
    assert {"CAP_SETUID", "CAP_SETGID", "CAP_KILL"} <= set(rights)


@pytest.mark.requires("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.parent.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / "profd.service"
    there = service(unit)["ExecStart"].split()[0]
    here.write_text(unit.read_text().replace(there, sys.executable))  # it has to exist
    verified = subprocess.run(
        ["systemd-analyze", f"--{unit.parent.name}", "verify", str(here)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={
            **os.environ,
            "XDG_RUNTIME_DIR": str(tmp_path),
        },  # else there are no users' units for it
    )
    complaints = [line for line in verified.stderr.splitlines() if "profd.service" in line]
    assert (verified.returncode, complaints) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.parent.name)
def test_memory_and_tasks_have_bounds_and_hardening_leaves_what_reading_needs(unit: Path) -> None:
    settings = service(unit)
    assert not set(FORBIDDEN) & set(settings)
    assert "@debug" in settings["SystemCallFilter"]
    assert "CAP_SYS_PTRACE" in settings.get("CapabilityBoundingSet", "CAP_SYS_PTRACE")
    assert settings["KillMode"] == "process"  # recordings outlive a restart
    assert settings["Type"] == "notify"
    assert {"MemoryHigh", "MemoryMax", "TasksMax"} <= set(settings)
    assert (
        settings["OOMPolicy"] == "continue"
    )  # one session that is too large does not end the others
