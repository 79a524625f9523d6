"""As ``torch/amp``."""

from .grad_scaler import GradScaler

__all__ = ["GradScaler"]
