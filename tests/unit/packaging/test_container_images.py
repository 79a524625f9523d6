"""The Dockerfile and the DaemonSet: accepted by hadolint and by the schema of Kubernetes, and able to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from support.folders import ROOT

DOCKERFILE = ROOT / "packaging" / "container" / "Dockerfile"
BIN = Path(sys.executable).parent
DAEMONSET = ROOT / "packaging" / "kubernetes" / "daemonset.yaml"


def test_hadolint_finds_nothing_wrong() -> None:
    linted = subprocess.run([BIN / "hadolint", str(DOCKERFILE)], capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_daemonset_fits_the_schema() -> None:
    validated = subprocess.run(
        [BIN / "kubernetes-validate", "--strict", str(DAEMONSET)], capture_output=True, text=True
    )
    assert (validated.returncode, validated.stderr) == (0, "")


def test_the_daemonset_sees_and_reads_the_processes_of_all_pods() -> None:
    pod = yaml.safe_load(DAEMONSET.read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostPID"]
    assert "SYS_PTRACE" in container["securityContext"]["capabilities"]["add"]
    assert container["volumeMounts"][0]["mountPath"] == container["env"][0]["value"]
