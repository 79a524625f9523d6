"""A finding of a live run comes with its cause, and goes once the cause has left the part that is looked at."""

from __future__ import annotations

from pathlib import Path

import msgspec
from support.dashboard import train_backward
from support.synthetic import live_run

from profd.daemon.clock import SECOND_NS
from profd.daemon.store.reader import RunReader
from profd.tui.reading.diagnosis import EVERY_S, RECENT_NS, Diagnosis
from profd.tui.reading.examiner import look
from profd.tui.reading.questions import Answer, Question


class Looking:
    """Looks at once when it is asked, in no time: how long a look takes puts the next one off."""

    is_there = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._question = Question(None)

    def ask(self, question: Question) -> bool:
        self._question = question
        return True

    def answer(self) -> Answer | None:
        return msgspec.structs.replace(look(self._path, self._question), spent_s=0.0)


def test_a_finding_comes_with_its_cause_and_goes_after_its_end(tmp_path: Path) -> None:
    now_s = [100.0]
    recent_s = RECENT_NS // SECOND_NS
    with live_run(tmp_path / "a.profd", seconds=0, workers=2) as run, RunReader(run.path) as reader:
        diagnosis = Diagnosis(reader, Looking(run.path), lambda: now_s[0])

        def rules() -> set[str]:
            run.advance(0)
            reader.refresh()
            now_s[0] += EVERY_S
            diagnosis.renew()
            return {one.rule for one in diagnosis.findings}

        train_backward(run, 20)
        assert "input-bound-saturated" not in rules()

        run.advance(20)  # it waits for data for more than half of each of these steps
        assert "input-bound-saturated" in rules()

        train_backward(run, recent_s // 2)
        assert "input-bound-saturated" in rules()

        train_backward(run, recent_s // 2 + 1)
        assert "input-bound-saturated" not in rules()
