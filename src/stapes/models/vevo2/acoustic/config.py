"""Sizes of the acoustic stages, from the config.json of their folders.

Field names are those of the published files: `preprocess` for the mel, `model` with
`flow_matching_transformer` or `vocos`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stapes.errors import ConfigError
from stapes.models.config_reader import ConfigReader

_MOST = 1 << 20  # no size is near it; keeps a damaged file from asking for absurd memory


@dataclass(frozen=True)
class MelSpec:
    """How a mel is made of samples; frequencies go from 0 Hz to half the rate."""

    sample_rate: int
    n_fft: int
    hop_size: int
    num_mels: int
    mel_mean: float
    mel_var: float


@dataclass(frozen=True)
class FlowMatchingSpec:
    """Sizes of the flow-matching transformer."""

    mel_dim: int
    hidden_size: int
    num_layers: int
    num_heads: int
    cond_codebook_size: int
    cond_scale_factor: int

    @property
    def intermediate_size(self) -> int:
        """Of the layers' gated MLPs, and of the four MLPs around them."""
        return 4 * self.hidden_size

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_size // self.num_heads

    @property
    def doublings(self) -> int:
        """Transposed convolutions between the rates of codes and of frames."""
        return self.cond_scale_factor.bit_length() - 1


@dataclass(frozen=True)
class VocoderSpec:
    """Sizes of the vocoder."""

    input_channels: int
    dim: int
    intermediate_dim: int
    num_layers: int
    n_fft: int
    hop_size: int


def mel_spec(config: Mapping[str, Any]) -> MelSpec:
    """The mel of a config.json with a section `preprocess`.

    Raises:
        ConfigError: a size is missing or impossible, or another kind of mel is asked for.
    """
    reader = ConfigReader(config, "config.json").section("preprocess")
    names = ("sample_rate", "n_fft", "hop_size", "num_mels")
    sizes = {name: _positive(reader, name) for name in names}
    reader.require("win_size", sizes["n_fft"])
    reader.require("fmin", 0)
    reader.require("fmax", sizes["sample_rate"] // 2)
    variance = reader.number("mel_var")
    if not variance > 0:
        raise ConfigError(f"{reader.where}'s mel_var is {variance}, not positive.")
    _check_frames(reader.where, sizes["n_fft"], sizes["hop_size"])
    return MelSpec(**sizes, mel_mean=reader.number("mel_mean"), mel_var=variance)


def flow_matching_spec(config: Mapping[str, Any]) -> FlowMatchingSpec:
    """The transformer of a config.json of acoustic_modeling.

    Raises:
        ConfigError: a size is missing or impossible, or a variant is asked for that is not known.
    """
    model = ConfigReader(config, "config.json").section("model")
    reader = model.section("flow_matching_transformer")
    for section in (model, reader):
        section.require("use_text_as_condition", False)
    reader.require("use_cond_code", True)
    names = ("mel_dim", "hidden_size", "num_layers", "num_heads", "cond_codebook_size")
    sizes = {name: _positive(reader, name) for name in (*names, "cond_scale_factor")}
    spec = FlowMatchingSpec(**sizes)
    if spec.hidden_size % (2 * spec.num_heads):
        raise ConfigError(
            f"{reader.where}'s num_heads {spec.num_heads} does not divide its hidden_size "
            f"{spec.hidden_size} into heads of an even width."
        )
    if spec.cond_scale_factor != 1 << spec.doublings:
        raise ConfigError(
            f"{reader.where}'s cond_scale_factor is {spec.cond_scale_factor}, no power of two."
        )
    return spec


def vocoder_spec(config: Mapping[str, Any]) -> VocoderSpec:
    """The vocoder of a config.json of the folder vocoder.

    Raises:
        ConfigError: a size is missing or impossible, or another padding is asked for.
    """
    reader = ConfigReader(config, "config.json").section("model").section("vocos")
    reader.require("padding", "same")
    names = ("input_channels", "dim", "intermediate_dim", "num_layers", "n_fft", "hop_size")
    spec = VocoderSpec(**{name: _positive(reader, name) for name in names})
    _check_frames(reader.where, spec.n_fft, spec.hop_size)
    return spec


def _positive(reader: ConfigReader, key: str) -> int:
    value = reader.integer(key, at_most=_MOST)
    if value < 1:
        raise ConfigError(f"{reader.where}'s {key} is {value}, not positive.")
    return value


def _check_frames(where: str, n_fft: int, hop_size: int) -> None:
    """Windows must overlap in whole hops, and be longer than a hop by an even number."""
    if n_fft % hop_size or n_fft // hop_size < 2 or (n_fft - hop_size) % 2 or n_fft % 2:
        raise ConfigError(f"{where}'s hop_size {hop_size} does not fit its n_fft {n_fft}.")
