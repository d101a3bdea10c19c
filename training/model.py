"""The network of tiny-en: transformers' own Qwen3-ASR classes at a small size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Qwen2Tokenizer, Qwen3ASRConfig, Qwen3ASRForConditionalGeneration

AUDIO = {
    "model_type": "qwen3_asr_encoder",
    "num_mel_bins": 128,
    "encoder_layers": 4,
    "encoder_attention_heads": 6,
    "encoder_ffn_dim": 768,
    "d_model": 192,
    "n_window": 50,
    "n_window_infer": 800,
    "output_dim": 192,
    "downsample_hidden_size": 32,
}
TEXT = {
    "model_type": "qwen3",
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 65536,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "attention_bias": False,
    "tie_word_embeddings": True,
}


def build_config(tokenizer: Qwen2Tokenizer) -> Qwen3ASRConfig:
    """The configuration, with every token id taken from the tokenizer."""
    ident = tokenizer.convert_tokens_to_ids
    ends = (ident("<|endoftext|>"), ident("<|im_end|>"))
    vocab_size = math.ceil(len(tokenizer) / 32) * 32
    text = {**TEXT, "vocab_size": vocab_size, "eos_token_id": list(ends), "pad_token_id": ends[1]}
    return Qwen3ASRConfig(
        audio_config=AUDIO,
        text_config={**text, "bos_token_id": None},
        audio_token_id=ident("<|audio_pad|>"),
        timestamp_token_id=ident("<timestamp>"),
        pad_token_id=ends[1],
        eos_token_id=list(ends),
        tie_word_embeddings=True,
    )


def scale_by_fan_in(model: nn.Module) -> None:
    """Replace the uniform 0.02 start, which starves the conv stem, by one over sqrt(fan-in)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear) and name != "lm_head":
            closing = name.endswith(("out_proj", "o_proj", "fc2", "down_proj"))
            scale = (0.5 if closing else 1.0) / math.sqrt(module.in_features)
            nn.init.normal_(module.weight, std=scale)


def build_model(tokenizer: Qwen2Tokenizer, seed: int = 0) -> Qwen3ASRForConditionalGeneration:
    """A fresh model in f32."""
    torch.manual_seed(seed)
    model = Qwen3ASRForConditionalGeneration(build_config(tokenizer)).float()
    scale_by_fan_in(model)
    model.tie_weights()
    return model


@dataclass(frozen=True)
class Encoded:
    """Audio embeddings of a batch: `rows` [batch, tokens, dim] with `lengths` [batch]."""

    rows: Tensor
    lengths: Tensor


def token_count(frames: Tensor) -> Tensor:
    """Audio tokens of clips with so many mel frames."""
    return 13 * (frames // 100) + (frames % 100 + 7) // 8


class WindowedLayers(nn.Module):
    """The encoder of the reference, run on padded windows instead of one window after another.

    Same weights and same result as `Qwen3ASREncoder.forward`; only the order of the work differs.
    """

    def __init__(self, model: Qwen3ASRForConditionalGeneration) -> None:
        super().__init__()
        self.tower = model.model.audio_tower
        self.projector = model.model.multi_modal_projector

    def stem(self, mel: Tensor) -> Tensor:
        """[batch, 128, 100 * chunks] mel -> [batch, 13 * chunks, dim]."""
        tower, (batch, bins, frames) = self.tower, mel.shape
        x = mel.view(batch, bins, frames // 100, 100).transpose(1, 2).reshape(-1, 1, bins, 100)
        for conv in (tower.conv2d1, tower.conv2d2, tower.conv2d3):
            x = nn.functional.gelu(conv(x))
        x = tower.conv_out(x.permute(0, 3, 1, 2).flatten(2))
        x = x + tower.positional_embedding.positional_embedding[: x.shape[1]]
        return x.reshape(batch, -1, x.shape[-1])

    def attend(self, layer: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
        """Self-attention of one layer inside each window."""
        attention, (windows, length, dim) = layer.self_attn, x.shape
        shape = (windows, length, attention.num_heads, -1)
        q, k, v = (
            p(x).view(shape).transpose(1, 2)
            for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        scores = (q @ k.transpose(-1, -2)) * attention.scaling  # 4x faster backward than fused
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        out = scores.softmax(-1).to(v.dtype) @ v
        return attention.out_proj(out.transpose(1, 2).reshape(windows, length, dim))

    def layers(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """All layers and the final norm on [windows, length, dim]."""
        for layer in self.tower.layers:
            x = x + self.attend(layer, layer.self_attn_layer_norm(x), mask)
            x = x + layer.fc2(nn.functional.gelu(layer.fc1(layer.final_layer_norm(x))))
        return self.tower.ln_post(x)

    def forward(self, mel: Tensor, frames: Tensor) -> Encoded:
        """Audio embeddings of zero-padded mels with their true frame counts."""
        x, lengths = self.stem(mel), token_count(frames)
        x = x[:, : int(lengths.max())]
        batch, length, dim = x.shape
        window = min(length, 104)
        count = math.ceil(length / window)
        x = nn.functional.pad(x, (0, 0, 0, count * window - length)).view(-1, window, dim)
        valid = (torch.arange(count * window) < lengths[:, None]).view(batch * count, 1, 1, window)
        valid = valid | ~valid.any(-1, keepdim=True)
        x = self.layers(x, None if valid.all() else valid)
        return Encoded(self.projector(x.view(batch, count * window, dim)[:, :length]), lengths)
