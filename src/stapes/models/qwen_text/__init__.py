"""Qwen2, Qwen2.5 and Qwen3 text models: Hugging Face folders, and GGUF files of llama.cpp."""

from stapes.models.qwen_text.load import TextModel, describe, load_source, load_text_model

__all__ = ["TextModel", "describe", "load_source", "load_text_model"]
