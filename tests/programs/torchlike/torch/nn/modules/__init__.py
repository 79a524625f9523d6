"""As ``torch/nn/modules``."""
