"""What holds for every test: no network, and the same random cases in every run."""

from __future__ import annotations

import os

# Before anything imports huggingface_hub, which reads it once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from hypothesis import settings

settings.register_profile("stapes", deadline=None, derandomize=True, database=None)
settings.load_profile("stapes")
