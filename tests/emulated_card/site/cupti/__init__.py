"""Stand in for NVIDIA's cupti-python on the emulated card, whose binding would load the real CUPTI."""

import os

__all__ = ["cupti"]

if os.environ.get("EMULATED_CARD_CUPTI") == "absent":
    raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
