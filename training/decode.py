"""Greedy decoding of whole batches with the reference network, for the checks while training."""

from __future__ import annotations

import torch
from transformers import Qwen3ASRForConditionalGeneration

from training.dataset import Batch
from training.model import WindowedLayers, token_count
from training.prompt import PromptBuilder


def parse(prompts: PromptBuilder, ids: list[int]) -> str:
    """The text after `<asr_text>`, or all of it when there is no tag."""
    tokenizer = prompts.tokenizer
    tag = tokenizer.convert_tokens_to_ids("<asr_text>")
    body = ids[ids.index(tag) + 1 :] if tag in ids else ids
    return tokenizer.decode(body, skip_special_tokens=True).strip()


@torch.no_grad()
def prompt_embeds(
    model: Qwen3ASRForConditionalGeneration, prompts: PromptBuilder, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded embeddings of the prompts with the audio in its place, and their mask."""
    encoded = WindowedLayers(model)(batch.mel, batch.frames)
    lists = [prompts.prompt(n) for n in token_count(batch.frames).tolist()]
    width = max(map(len, lists))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in lists])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in lists])
    embeds = model.get_input_embeddings()(ids)
    place = (ids == model.config.audio_token_id).unsqueeze(-1)
    valid = torch.arange(encoded.rows.shape[1]) < encoded.lengths[:, None]
    return embeds.masked_scatter(place, encoded.rows[valid]), mask


@torch.no_grad()
def transcribe_mels(
    model: Qwen3ASRForConditionalGeneration, prompts: PromptBuilder, batch: Batch, limit: int = 16
) -> list[str]:
    """The words heard in every clip of a batch."""
    embeds, mask = prompt_embeds(model, prompts, batch)
    out = model.generate(
        inputs_embeds=embeds,
        attention_mask=mask,
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=list(model.config.eos_token_id),
        pad_token_id=model.config.pad_token_id,
    )
    return [parse(prompts, row.tolist()) for row in out]
