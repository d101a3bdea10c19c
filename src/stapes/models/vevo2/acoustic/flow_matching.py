"""Flow matching: content-style codes and a timbre's mel -> the mel of what is to be heard.

Noise is carried along a flow that the transformer gives, in so many equal steps of Euler's method,
each with the flow at its middle time. A second pass without codes and prompt gives the flow that
guidance leads away from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.errors import CancelledError, NumericError, RequestError
from stapes.graph import Executor, Plan
from stapes.models.vevo2.acoustic.config import FlowMatchingSpec
from stapes.models.vevo2.acoustic.flow_network import (
    build_body,
    build_codebook,
    build_condition,
    build_doubling,
    build_steps,
    step_embedding,
)
from stapes.models.vevo2.acoustic.flow_weights import FlowWeights

F32 = NDArray[np.float32]
Codes = NDArray[np.integer[Any]]

_MOST_STEPS, _MOST_CFG = 1000, 100
_LONGEST_FRAMES = 30_000  # 10 minutes at 50 Hz: far beyond what the model was trained on


@dataclass(frozen=True)
class FlowOptions:
    """How a mel is drawn.

    Attributes:
        steps: of Euler's method; work grows with them.
        cfg: strength of guidance; 0 leaves the unconditional pass out, and half of the work.
        rescale: share of the guided flow that is brought back to the spread of the plain one.
        seed: of the noise; the same seed gives the same mel.
    """

    # Defaults of the reference (Amphion: `flow_matching_steps`, `cfg`, `rescale_cfg`).
    steps: int = 32
    cfg: float = 1.0
    rescale: float = 0.75
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (("steps", 1, _MOST_STEPS), ("seed", 0, 2**64 - 1)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not least <= value <= most:
                raise RequestError(f"{name} must lie between {least} and {most}, not {value!r}.")
        for name, most in (("cfg", _MOST_CFG), ("rescale", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= most:
                raise RequestError(f"{name} must lie between 0 and {most}, not {value!r}.")


DEFAULTS = FlowOptions()


def initial_noise(seed: int, frames: int, mel_dim: int) -> F32:
    """The normal numbers [frames, mel_dim] that a seed stands for."""
    return np.random.default_rng(seed).standard_normal((frames, mel_dim), dtype=np.float32)


class FlowMatching:
    """The acoustic model; holds no state between calls.

    Args:
        spec: sizes.
        weights: all weights, packed.
        make_executor: makes an executor of a plan.
    """

    def __init__(
        self,
        spec: FlowMatchingSpec,
        weights: FlowWeights,
        make_executor: Callable[[Plan], Executor],
    ) -> None:
        self.spec = spec
        self._codebook = make_executor(build_codebook(spec, weights))
        self._doublings = [make_executor(build_doubling(spec, w)) for w in weights.doublings]
        self._condition = make_executor(build_condition(spec, weights))
        self._steps = make_executor(build_steps(spec, weights))
        self._body = make_executor(build_body(spec, weights))

    def frames(self, codes: int, prompt_frames: int) -> int:
        """Frames of the mel that so many codes give behind a prompt: may be none, or less."""
        return codes * self.spec.cond_scale_factor - prompt_frames

    def mel(
        self,
        codes: Codes,
        prompt_mel: F32,
        options: FlowOptions = DEFAULTS,
        *,
        progress: Callable[[int, int], None] | None = None,
        should_cancel: Callable[[], bool] | None = None,
    ) -> F32:
        """Draw a mel.

        Args:
            codes: whole numbers [n]: those of the timbre's recording, then those to be heard.
            prompt_mel: f32 [prompt frames, mel_dim], of the timbre's recording; may have no frames.
            options: steps, guidance and seed.
            progress: called after every step with how many are done, and how many there are.
            should_cancel: asked before every step; True ends with `CancelledError`.

        Returns:
            f32 [cond_scale_factor * n - prompt frames, mel_dim], normalised.

        Raises:
            RequestError: codes or prompt do not fit the model, or leave no frames.
            NumericError: the flow is not finite. CancelledError: see should_cancel.
        """
        states = self.states(codes, prompt_mel, options)
        for done in range(options.steps):
            if should_cancel is not None and should_cancel():
                raise CancelledError(f"Cancelled after {done} of {options.steps} steps.")
            mel = next(states)
            if progress is not None:
                progress(done + 1, options.steps)
        return mel

    def states(self, codes: Codes, prompt_mel: F32, options: FlowOptions) -> Iterator[F32]:
        """What `mel` goes through: the target's rows [frames, mel_dim] after each step."""
        codes, prompt_mel = self._checked(codes, prompt_mel)
        frames = self.frames(codes.size, prompt_mel.shape[0])
        passes = _Passes(prompt_mel, frames, options.cfg > 0)
        rows = self._rows(codes, passes)
        scales = self._scales(options.steps)
        x = initial_noise(options.seed, frames, self.spec.mel_dim)
        for i in range(options.steps):
            rows["mel"] = passes.mel(x)
            flow = self._body.run(rows | {"scales": scales[i : i + 1]})["flow"]
            flow = guided(flow.astype(np.float32, copy=False), frames, options)
            x = x + flow * np.float32(1 / options.steps)
            if not np.isfinite(x).all():
                raise NumericError(f"The mel holds a value that is not finite after step {i + 1}.")
            yield x

    def _checked(self, codes: Codes, prompt_mel: F32) -> tuple[NDArray[np.int32], F32]:
        spec = self.spec
        codes = np.asarray(codes)
        if codes.ndim != 1 or (codes.size and codes.dtype.kind not in "iu"):
            raise RequestError(f"Codes are whole numbers [n], not {codes.dtype} {codes.shape}.")
        if prompt_mel.ndim != 2 or prompt_mel.shape[1] != spec.mel_dim:
            shape = prompt_mel.shape
            raise RequestError(f"A prompt's mel is [frames, {spec.mel_dim}], not {shape}.")
        outside = codes[(codes < 0) | (codes >= spec.cond_codebook_size)]
        if outside.size:
            raise RequestError(
                f"Code {outside[0]} lies outside 0..{spec.cond_codebook_size - 1}, the codebook."
            )
        frames = self.frames(codes.size, prompt_mel.shape[0])
        if not 0 < frames <= _LONGEST_FRAMES:
            raise RequestError(
                f"{codes.size} codes and a prompt of {prompt_mel.shape[0]} frames leave {frames} "
                f"frames to draw; it must be 1 to {_LONGEST_FRAMES}."
            )
        if not np.isfinite(prompt_mel).all():
            raise RequestError("The prompt's mel holds a value that is not finite.")
        return codes.astype(np.int32), prompt_mel.astype(np.float32, copy=False)

    def _rows(self, codes: NDArray[np.int32], passes: _Passes) -> dict[str, NDArray[Any]]:
        """The inputs of the body that are the same for every step."""
        condition = self._codebook.run({"codes": codes})["rows"].astype(np.float32, copy=False)
        for executor in self._doublings:
            between = executor.run({"pairs": neighbours(condition)})["between"]
            condition = between.reshape(-1, self.spec.hidden_size)[1:-1].astype(np.float32)
        # The unconditional pass has zeros for its condition: one row that its rows share.
        condition = np.append(condition, np.zeros((1, condition.shape[1]), np.float32), axis=0)
        condition = self._condition.run({"rows": condition})["condition"].astype(np.float32)
        return passes.indices() | {"condition": passes.spread(condition)}

    def _scales(self, steps: int) -> F32:
        """Scales of all norms [steps, ...] at the middle of every step."""
        times = (np.arange(steps) + 0.5) / steps
        embeddings = step_embedding(times, self.spec.hidden_size)
        return self._steps.run({"embeddings": embeddings})["scales"].astype(np.float32, copy=False)


class _Passes:
    """The rows of a step: prompt and target, then, where there is guidance, the target again."""

    def __init__(self, prompt: F32, frames: int, guidance: bool) -> None:
        self._prompt, self._frames, self._guidance = prompt.shape[0], frames, guidance
        self._with_codes = self._prompt + frames
        self._mel = np.empty((self._with_codes + frames * guidance, prompt.shape[1]), np.float32)
        self._mel[: self._prompt] = prompt

    def mel(self, x: F32) -> F32:
        """The rows with the target as it is now; the array is the same each time."""
        self._mel[self._prompt : self._with_codes] = x
        if self._guidance:
            self._mel[self._with_codes :] = x
        return self._mel

    def spread(self, condition: F32) -> F32:
        """The condition of all rows, from that of the first pass and, last, that of the second."""
        if not self._guidance:
            return condition[:-1]
        return np.append(condition[:-1], np.repeat(condition[-1:], self._frames, axis=0), axis=0)

    def indices(self) -> dict[str, NDArray[np.int32]]:
        """Inputs of the body that tell rows apart; positions of either pass begin at 0."""
        rows, own = np.arange(len(self._mel)), self._with_codes
        guided = rows >= own
        columns = {
            "positions": np.where(guided, rows - own, rows),
            "starts": np.where(guided, own, 0),
            "ends": np.where(guided, len(rows), own),
            "row_steps": np.zeros(len(rows)),
            "targets": rows[self._prompt :],
            "target_steps": np.zeros(len(rows) - self._prompt),
        }
        return {name: values.astype(np.int32) for name, values in columns.items()}


def neighbours(rows: F32) -> F32:
    """Rows [n, width] -> [n + 1, 2 * width]: each with the one before it, zeros at both ends."""
    padded = np.pad(rows, [(1, 1), (0, 0)])
    return np.concatenate([padded[:-1], padded[1:]], axis=1)


def guided(flow: F32, frames: int, options: FlowOptions) -> F32:
    """Flows of the conditional pass, and behind them of the unconditional one -> the flow to take.

    The conditional flow is led away from the other, and a share of the result brought back to the
    deviation (unbiased, over all values) that the conditional flow had.
    """
    if not options.cfg > 0:
        return flow
    plain, other = flow[:frames], flow[frames:]
    led: F32 = plain + np.float32(options.cfg) * (plain - other)
    spread = _deviation(led)
    ratio = _deviation(plain) / spread if spread > 0 else 1.0
    return led * np.float32(options.rescale * ratio + (1 - options.rescale))


def _deviation(values: F32) -> float:
    return float(values.std(ddof=1, dtype=np.float64)) if values.size > 1 else 0.0
