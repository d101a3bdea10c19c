"""Qwen3-ASR: speech to text."""

from stapes.models.qwen3_asr.model import Qwen3Asr, load_qwen3_asr

__all__ = ["Qwen3Asr", "load_qwen3_asr"]
