"""As ``torch/autograd/variable.py``: holds the engine."""

from __future__ import annotations

from .._C import ImperativeEngine


class Variable:
    _execution_engine = ImperativeEngine()
