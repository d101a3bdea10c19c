"""Qwen3-ForcedAligner: when each word of a known text is spoken."""

from stapes.models.qwen3_asr.aligner.model import ForcedAligner, describe, load_source

__all__ = ["ForcedAligner", "describe", "load_source"]
