"""The decoder runtime: one causal Qwen decoder for every model that reads injected embeddings."""

from stapes.decoder.decoder import Decoder
from stapes.decoder.generate import FinishReason, GenerateOptions, GenerateResult, generate
from stapes.decoder.loops import LoopDetector
from stapes.decoder.prompt import Injection, Prompt
from stapes.decoder.session import Session
from stapes.decoder.spec import DecoderNames, DecoderSpec
from stapes.decoder.weights import DecoderWeights, expected_tensors, load_weights, read_weights

__all__ = [
    "Decoder",
    "DecoderNames",
    "DecoderSpec",
    "DecoderWeights",
    "FinishReason",
    "GenerateOptions",
    "GenerateResult",
    "Injection",
    "LoopDetector",
    "Prompt",
    "Session",
    "expected_tensors",
    "generate",
    "load_weights",
    "read_weights",
]
