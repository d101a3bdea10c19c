"""Qwen3-ASR: speech to text."""

from stapes.models.qwen3_asr.model import Qwen3Asr, describe, load_source

__all__ = ["Qwen3Asr", "describe", "load_source"]
