"""What is known of Audio8-ASR, but was never checked against its published files.

All of it stands here, so that whoever has the files needs to look in one place only;
docs/models/audio8-asr.md says where each comes from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """Facts at second hand.

    Attributes:
        merge_factor: pairs of mel frames that an embedding stands for, where config.json is silent.
        mlp_tower_layers: blocks of the adapter, where config.json is silent.
        mlp_tower_ratio: width of a block's hidden layer in encoder widths, where it is silent.
        tie_word_embeddings: where it is silent; a head that differs is refused all the same.
        layer_norm_eps: of the adapter's norms: torch's default.
        user, audio_begin, audio, audio_end, assistant: names of the prompt's control tokens.
        instruction: what the user turn says behind the audio.
        bf16_mel: mel features are rounded to bf16, as the publisher's processor hands them over.
    """

    merge_factor: int = 4
    mlp_tower_layers: int = 4
    mlp_tower_ratio: int = 4
    tie_word_embeddings: bool = True
    layer_norm_eps: float = 1e-5
    user: str = "<|user|>"
    audio_begin: str = "<|begin_of_audio|>"
    audio: str = "<|audio|>"
    audio_end: str = "<|end_of_audio|>"
    assistant: str = "<|assistant|>"
    instruction: str = "Please transcribe this audio."
    bf16_mel: bool = True


ASSUMED = Assumptions()
