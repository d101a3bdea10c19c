"""Audio8-ASR: Qwen3-ASR's audio encoder, an adapter, and a small Qwen2 decoder."""

from stapes.models.qwen3_asr.audio8.model import Audio8Asr, describe, load_source

__all__ = ["Audio8Asr", "describe", "load_source"]
