"""The decoder runtime: one causal Qwen decoder for every model that reads injected embeddings.

docs/api.md walks through it: a `DecoderSpec` and weights make a `Decoder`, its sessions hold
caches, and `generate` or a `Batch` continues prompts in them. examples/custom_model.py wires an
audio encoder to it.
"""

from stapes.decoder.batch import Batch
from stapes.decoder.decoder import Decoder
from stapes.decoder.generate import generate
from stapes.decoder.generation import Generation
from stapes.decoder.loops import LoopDetector
from stapes.decoder.options import FinishReason, GenerateOptions, GenerateResult
from stapes.decoder.pool import SessionPool
from stapes.decoder.prompt import Injection, Prompt
from stapes.decoder.sampling import Sampler, SamplingOptions
from stapes.decoder.session import Session
from stapes.decoder.spec import DecoderNames, DecoderSpec
from stapes.decoder.weights import DecoderWeights, expected_tensors, load_weights, read_weights

__all__ = [
    "Batch",
    "Decoder",
    "DecoderNames",
    "DecoderSpec",
    "DecoderWeights",
    "FinishReason",
    "GenerateOptions",
    "GenerateResult",
    "Generation",
    "Injection",
    "LoopDetector",
    "Prompt",
    "Sampler",
    "SamplingOptions",
    "Session",
    "SessionPool",
    "expected_tensors",
    "generate",
    "load_weights",
    "read_weights",
]
