"""A process of `stapes bench load`: loads a model, transcribes noise, and tells what that took.

Arguments: the moment at which the process was started (nanoseconds of the monotonic clock), the
model, keyword arguments of `stapes.load` as JSON, seconds of noise.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import stapes
from stapes.bench.processes import status_mb

_NEW_TOKENS = 8


def main() -> None:
    """Print one JSON object."""
    start_ns, name, keywords, seconds = sys.argv[1:]
    imported_ns = time.perf_counter_ns()
    model: Any = stapes.load(name, **json.loads(keywords))
    model.decoder.new_session()  # builds the decoder's plan
    ready_ns = time.perf_counter_ns()
    found = {
        "ready_s": (ready_ns - int(start_ns)) / 1e9,
        "load_s": (ready_ns - imported_ns) / 1e9,
        "rss_ready_mb": status_mb("VmRSS"),
        "weights_mb": _weights_bytes(model) / 1e6,
    }
    _forget_peak()
    found["kv_mb"] = _transcribe(model, float(seconds)) / 1e6
    found["rss_peak_mb"] = status_mb("VmHWM")
    sys.stdout.write(json.dumps(found))


def _weights_bytes(model: Any) -> int:
    plans = (model.encoder._stem.plan, model.encoder._body.plan)
    encoder = sum(int(matrix.nbytes) for plan in plans for matrix in plan.matrices)
    return int(model.decoder.weights.nbytes) + encoder


def _transcribe(model: Any, seconds: float) -> int:
    """Bytes of the cache that the answer took."""
    import numpy as np

    noise = 0.05 * np.random.default_rng(0).standard_normal(round(seconds * 16000))
    transcript = model.transcribe(
        noise.astype(np.float32), sample_rate=16000, max_new_tokens=_NEW_TOKENS, vad=False
    )
    positions = transcript.tokens.prompt + transcript.tokens.new
    return int(-(-positions // 512) * model.decoder.new_cache().page_bytes)


def _forget_peak() -> None:
    """Let VmHWM begin anew, where the kernel allows it: packing is not what is asked about."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
