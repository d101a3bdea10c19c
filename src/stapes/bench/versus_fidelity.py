"""transformers with the same file's weights in f32, beside `stapes bench fidelity`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stapes.bench.fidelity import FIRST_TOKENS, NEW_TOKENS, FidelityBench, Measured
from stapes.bench.perplexity import Ids, Windows, perplexity, target_nll
from stapes.bench.versus import refresh_frequencies, require_transformers
from stapes.models.qwen_text import TextModel
from stapes.models.registry import find_model

F32 = NDArray[np.float32]


class TransformersText:
    """A causal model of transformers on the CPU in f32, from a folder or a GGUF file."""

    name = "transformers"

    def __init__(self, bench: FidelityBench) -> None:
        self._torch, self._transformers = require_transformers(bench.threads)
        path = find_model(bench.model)
        self._model = (self._from_folder(path) if path.is_dir() else self._from_gguf(path)).eval()

    def _from_folder(self, path: Path) -> Any:
        load: Any = self._transformers.AutoModelForCausalLM.from_pretrained
        return load(str(path), dtype=self._torch.float32)

    def _from_gguf(self, path: Path) -> Any:
        """By its own reader. Its from_pretrained would need accelerate for the same steps."""
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

        torch, found = self._torch, self._transformers
        config = found.AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
        with torch.device("meta"):
            model = found.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tensors = load_gguf_checkpoint(
            str(path), return_tensors=True, model_to_load=model, torch_dtype=torch.float32
        )["tensors"]
        if config.tie_word_embeddings:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        model.load_state_dict(tensors, assign=True)
        refresh_frequencies(model)
        return model

    def logits(self, ids: Ids) -> F32:
        """Logits [n, vocabulary] of ids [n], read in one go."""
        rows = self._torch.from_numpy(ids.astype(np.int64))[None]
        with self._torch.inference_mode():
            return np.asarray(self._model(input_ids=rows).logits[0].numpy())

    def versus(
        self, model: TextModel, ids: Ids, prompts: list[Ids], ours: Measured, windows: Windows
    ) -> dict[str, object]:
        """Tensors that differ, both perplexities, and prompts whose greedy ids are the same.

        An id is the same as its greedy one when it is the first maximum after the ids before it.
        So an answer of ours all of whose ids are is its answer, too. `smallest_margin` is by how
        much the highest logit led the second one, where that was least.
        """
        theirs = perplexity(self._losses(ids, windows))
        same, margins = zip(
            *(self._same(p, a) for p, a in zip(prompts, ours.answers, strict=True)), strict=True
        )
        equal = np.stack(same)
        return {
            "tensors": len(self._model.state_dict()),
            "different_tensors": self.different_tensors(model),
            "perplexity": round(theirs, 4),
            "ratio": round(perplexity(ours.losses) / theirs, 7),
            f"first_{FIRST_TOKENS}": int(equal[:, :FIRST_TOKENS].all(axis=1).sum()),
            f"all_{NEW_TOKENS}": int(equal.all(axis=1).sum()),
            "smallest_margin": round(float(np.min(margins)), 5),
        }

    def _losses(self, ids: Ids, windows: Windows) -> NDArray[np.float64]:
        found = []
        for start, scored, end in windows.cut(ids.size):
            logits = self.logits(ids[start:end])
            found.append(target_nll(logits[scored - start - 1 : -1], ids[scored:end]))
        return np.concatenate(found)

    def _same(self, prompt: Ids, answer: Ids) -> tuple[NDArray[np.bool_], float]:
        """Whether each id of an answer is the greedy one, and the smallest lead of one."""
        logits = self.logits(np.concatenate([prompt, answer[:-1]]))[prompt.size - 1 :]
        two = np.partition(logits, -2, axis=1)[:, -2:]
        return logits.argmax(axis=1) == answer, float((two[:, 1] - two[:, 0]).min())

    def different_tensors(self, model: TextModel) -> int:
        """Tensors of ours whose values are not exactly its."""
        state = {name: tensor.numpy() for name, tensor in self._model.state_dict().items()}
        return sum(
            not np.array_equal(values, np.concatenate([state[name] for name in names]))
            for names, values in _tensors(model)
        )


def _tensors(model: TextModel) -> Iterator[tuple[tuple[str, ...], F32]]:
    """Every tensor of ours, and the names of those that it is stacked of."""
    weights, names = model.decoder.weights, model.decoder.spec.names
    yield (names.token_embedding,), weights.embedding.to_f32()
    yield (names.final_norm,), weights.final_norm
    yield (names.lm_head,), weights.head.to_f32()
    for i, layer in enumerate(weights.layers):
        prefix = f"{names.layer_prefix}.{i}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        yield tuple(f"{attention}.{x}_proj.weight" for x in "qkv"), layer.qkv.to_f32()
        if layer.qkv_bias is not None:
            yield tuple(f"{attention}.{x}_proj.bias" for x in "qkv"), layer.qkv_bias
        if layer.q_norm is not None and layer.k_norm is not None:
            yield (f"{attention}.q_norm.weight",), layer.q_norm
            yield (f"{attention}.k_norm.weight",), layer.k_norm
        yield (f"{attention}.o_proj.weight",), layer.o.to_f32()
        yield (f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"), layer.gate_up.to_f32()
        yield (f"{mlp}.down_proj.weight",), layer.down.to_f32()
        yield (f"{prefix}.input_layernorm.weight",), layer.input_norm
        yield (f"{prefix}.post_attention_layernorm.weight",), layer.post_attention_norm
