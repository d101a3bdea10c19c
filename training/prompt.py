"""The exact prompt and answer of Qwen3-ASR as token ids."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import Qwen2Tokenizer


@dataclass(frozen=True)
class PromptBuilder:
    """Builds prompts and answers; the context is encoded as plain text."""

    tokenizer: Qwen2Tokenizer

    def encode(self, text: str) -> list[int]:
        """Ids of a piece of the template, control tokens included."""
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def plain(self, text: str) -> list[int]:
        """Ids of user text, in which control strings stay plain text."""
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids

    def prompt(self, audio_tokens: int, context: str = "", forced: bool = False) -> list[int]:
        """Everything before the answer."""
        pad = self.tokenizer.convert_tokens_to_ids("<|audio_pad|>")
        head = self.encode("<|im_start|>system\n") + self.plain(context)
        middle = self.encode("<|im_end|>\n<|im_start|>user\n<|audio_start|>")
        tail = self.encode("<|audio_end|><|im_end|>\n<|im_start|>assistant\n")
        prefix = self.encode("language English<asr_text>") if forced else []
        return head + middle + [pad] * audio_tokens + tail + prefix

    def answer(self, words: str, forced: bool = False) -> list[int]:
        """The answer with its end; no words means no speech."""
        language = "English" if words else "None"
        text = words if forced else f"language {language}<asr_text>{words}"
        return self.encode(f"{text}<|im_end|>")
