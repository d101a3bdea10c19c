"""From the folders acoustic_modeling/... and vocoder of a checkpoint to models that are ready.

Each holds a config.json, which is JSON5 and is read elsewhere, and model.safetensors. What else
lies there (discriminators of the vocoder's training) is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stapes.graph import NO_TRACE, Engine, NativeExecutor, NoTracer
from stapes.models.vevo2.acoustic import flow_weights, vocoder_weights
from stapes.models.vevo2.acoustic.config import flow_matching_spec, vocoder_spec
from stapes.models.vevo2.acoustic.flow_matching import FlowMatching
from stapes.models.vevo2.acoustic.vocoder import Vocoder
from stapes.options import WeightFormat
from stapes.tensors import check_tensors, open_safetensors
from stapes.weights import CheckpointReader, MatrixPacker

WEIGHTS: WeightFormat = "bf16"
"""What the acoustic stages are packed as: the many rows of these stages run as fast as with f32 and
faster than with q8, with less error than with q8 (docs/models/vevo2-acoustic.md)."""


def load_flow_matching(
    folder: Path,
    config: Mapping[str, Any],
    engine: Engine,
    weights: WeightFormat = WEIGHTS,
    tracer: NoTracer = NO_TRACE,
) -> FlowMatching:
    """The flow-matching transformer of a folder of acoustic_modeling.

    Args:
        folder: holds model.safetensors.
        config: its config.json.
        engine: threads and kernels, which may be shared.
        weights: the format of all matrices.
        tracer: records the runs.

    Raises:
        ConfigError, TensorFileError, CheckpointError: see `stapes.errors`.
    """
    spec = flow_matching_spec(config)
    with open_safetensors(folder) as store:
        check_tensors(store, flow_weights.expected_tensors(spec), ignored=flow_weights.is_surplus)
        reader = CheckpointReader(store, MatrixPacker(engine, weights))
        read = flow_weights.read_flow_weights(reader, spec)
    return FlowMatching(spec, read, partial(NativeExecutor, engine=engine, tracer=tracer))


def load_vocoder(
    folder: Path,
    config: Mapping[str, Any],
    engine: Engine,
    weights: WeightFormat = WEIGHTS,
    tracer: NoTracer = NO_TRACE,
) -> Vocoder:
    """The vocoder of the folder vocoder; arguments and errors as of `load_flow_matching`."""
    spec = vocoder_spec(config)
    with open_safetensors(folder) as store:
        check_tensors(store, vocoder_weights.expected_tensors(spec))
        reader = CheckpointReader(store, MatrixPacker(engine, weights))
        read = vocoder_weights.read_vocoder_weights(reader, spec)
    return Vocoder(spec, read, partial(NativeExecutor, engine=engine, tracer=tracer))
