"""What the shared options make of words."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from profd.cli.options import RecordingOptions, recording_options, selection_options
from profd.daemon.api.selectors import Selectors


def received(decorate: object, *words: str) -> dict[str, object]:
    """Return what a command with these options receives from words."""
    got: dict[str, object] = {}

    def command(**options: object) -> None:
        got.update(options)

    ended = CliRunner().invoke(click.command()(decorate(command)), words)  # type: ignore[operator]
    assert ended.exit_code == 0, ended.output
    return got


def test_recording_options_arrive_in_their_units_and_selections_together() -> None:
    assert received(recording_options) == {"recording": RecordingOptions()}
    got = received(
        selection_options,
        "--from",
        "1",
        "--to",
        "12:00:00",
        "--process",
        "7",
        "--phase",
        "data wait",
    )
    assert got == {
        "words": dict.fromkeys(Selectors.__annotations__)
        | {"from_": "1", "to": "12:00:00", "process": 7, "phase": "data wait", "when": ()}
    }
    words = (
        "--rate 50 --budget 2.5 --duration 1.5 --name cifar -o x.profd --no-subprocesses "
        "--all-gpus --no-steps"
    )
    words += (
        " --no-source --hang-after 5 --on-hang date --metrics 0.0.0.0:9400 --otlp "
        "http://localhost:4318"
    )
    (recording,) = received(recording_options, *words.split()).values()
    assert recording == RecordingOptions(
        rate_hz=50,
        budget_percent=2.5,
        duration_s=1.5,
        name="cifar",
        output=Path("x.profd"),
        subprocesses=False,
        hang_after_s=5.0,
        on_hang="date",
        all_gpus=True,
        metrics_address="0.0.0.0:9400",
        otlp_endpoint="http://localhost:4318",
        steps=False,
        source=False,
    )


@pytest.mark.parametrize(
    "words", ["--rate 0", "--rate 1001", "--budget 0", "--duration 0", "--duration -1"]
)
def test_recording_option_out_of_its_range_is_refused(words: str) -> None:
    ended = CliRunner().invoke(click.command()(recording_options(lambda **_: None)), words.split())
    assert ended.exit_code == 2
