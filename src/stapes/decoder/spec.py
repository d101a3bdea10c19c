"""What a decoder is: its sizes, its switches and the names of its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from stapes.errors import ConfigError

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)

_MAX_F32 = 3.4e38  # RoPE's rates are computed in f32


@dataclass(frozen=True)
class DecoderNames:
    """Where a checkpoint keeps the decoder's tensors; `expected_tensors` has all names.

    Attributes:
        token_embedding: [vocab_size, hidden_size].
        final_norm: [hidden_size].
        lm_head: [logits_size, hidden_size]; not read when the head is tied to the embedding.
        layer_prefix: names of layer i begin with `layer_prefix.i`.
    """

    token_embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"
    lm_head: str = "lm_head.weight"
    layer_prefix: str = "model.layers"


@dataclass(frozen=True)
class DecoderSpec:
    """A Qwen-family decoder. Fields have the names of the Hugging Face configuration.

    Attributes:
        hidden_size, intermediate_size: width of a row, and of the MLP inside.
        num_hidden_layers: layers.
        num_attention_heads, num_key_value_heads: heads of q, a multiple of those of k and v.
        head_dim: size of a head, independent of hidden_size / num_attention_heads; even.
        vocab_size: rows of the embedding; prompts hold ids below it.
        logits_size: outputs of the head; None means vocab_size, other values need an untied head.
        max_position_embeddings: most positions of a prompt and its answer together.
        rms_norm_eps: added under the root of every RMSNorm.
        rope_theta: base of the rotary embedding.
        tie_word_embeddings: the head is the embedding; there is no tensor of its own.
        attention_bias: biases on the q, k and v projections (Qwen2); o_proj and the MLP have none.
        qk_norm: RMSNorm over each head of q and k before RoPE (Qwen3).
        packed_qkv: the checkpoint holds one qkv_proj with rows in the order q, k, v.
        eos_token_ids: ids that end an answer, inside the vocabulary; may be empty.
        names: of the tensors in the checkpoint.

    Raises:
        ConfigError: naming the field and its value.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    attention_bias: bool
    qk_norm: bool
    eos_token_ids: frozenset[int]
    packed_qkv: bool = False
    logits_size: int | None = None
    names: DecoderNames = field(default_factory=DecoderNames)

    def __post_init__(self) -> None:
        for name in _SIZES:
            self._require(name, _is_size(getattr(self, name)), "be a positive whole number")
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        self._require("num_attention_heads", heads % kv_heads == 0, f"be a multiple of {kv_heads}")
        self._require("head_dim", self.head_dim % 2 == 0, "be even")
        self._require("rms_norm_eps", 0 <= self.rms_norm_eps < 1, "lie in [0, 1)")
        self._require("rope_theta", 0 < self.rope_theta < _MAX_F32, "be positive and finite")
        self._require("logits_size", _is_size(self.head_size), "be a positive whole number")
        if self.tie_word_embeddings:
            fits = self.head_size == self.vocab_size
            self._require("logits_size", fits, f"equal vocab_size ({self.vocab_size}) when tied")
        inside = all(0 <= i < self.vocab_size for i in self.eos_token_ids)
        self._require("eos_token_ids", inside, f"lie in 0..{self.vocab_size - 1}")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            value = getattr(self, name)
            shown = sorted(value) if isinstance(value, frozenset) else value
            raise ConfigError(f"The decoder's {name} is {shown!r}, but must {rule}.")

    def sizes(self) -> dict[str, int]:
        """Layers, heads and widths by their names."""
        return {name: getattr(self, name) for name in _SIZES}

    @property
    def head_size(self) -> int:
        """Outputs of the vocabulary head."""
        return self.vocab_size if self.logits_size is None else self.logits_size

    @property
    def q_size(self) -> int:
        """Width of the query projection."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of the key projection, and of the value projection."""
        return self.num_key_value_heads * self.head_dim


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
