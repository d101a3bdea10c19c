"""Qwen2, Qwen2.5 and Qwen3 text models: Hugging Face folders, and GGUF files of llama.cpp."""

from stapes.models.qwen_text.answer import Answer
from stapes.models.qwen_text.load import describe, load_source, load_text_model
from stapes.models.qwen_text.model import TextModel
from stapes.models.qwen_text.options import TextOptions

__all__ = ["Answer", "TextModel", "TextOptions", "describe", "load_source", "load_text_model"]
