"""What the measure of density counts, and that it ends with an error above a budget."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.folders import ROOT


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("density", ROOT / "packaging" / "density.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


density = load()

SOURCE = '''"""Say where it is: "Where", elsewhere."""
MOST, _LEAST = 3, -1
NAME = "three"
Size = 4


class Both:
    """It is here."""


def decide(items):
    """Return some."""
    if (
        items
        and len(items) > 1
        or not items
    ):
        return [one for one in items if one]
    return 1 if items else 2
'''


def test_each_figure_is_what_it_says() -> None:
    modules = [density.Module("a.py", SOURCE), density.Module("b.py", SOURCE + "#" * 101)]
    figures, too_many = density.measure(modules)
    (function, _) = [one for module in modules for one in module.functions()]
    # an if with `and` and `or`, a comprehension with its condition, a ternary
    assert (function.branches, function.place) == (6, "a.py:11")
    words = 2 * len(
        ["Say", "where", "it", "is:", "Where", "elsewhere", *["It", "is", "here", "Return", "some"]]
    )
    assert figures["'where' in 1,000 words"] == round(1000 * 4 / words, 1)
    assert figures["numeric constants in 1,000 lines"] == round(1000 * 4 / 39, 1)
    assert figures["class names of two modules"] == 1
    assert figures["lines over 100 columns"] == 1
    assert figures["branches of a function"] == 6
    assert figures["branches a line, median"] == 0.67
    assert too_many == []


@pytest.mark.parametrize(("budget", "exceeded"), [(0, True), (10**6, False)])
def test_a_budget_that_is_exceeded_fails_the_check(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    budget: int,
    exceeded: bool,
) -> None:
    """Today's code is measured by ``make check``."""
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "a.py").write_text(SOURCE)
    monkeypatch.setattr(density, "ROOT", tmp_path)
    monkeypatch.setattr(density, "BUDGETS", dict.fromkeys(density.BUDGETS, budget))
    assert bool(density.main()) is exceeded
    assert ("too much" in capsys.readouterr().out) is exceeded
