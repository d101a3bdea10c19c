"""Step 3: train. Resumable: a checkpoint every few minutes.

    python -m training.train --minutes 76 [--resume] [--name tiny-en] [--threads 2]
    python -m training.train --name second --start RUN/last.pt --minutes 12 --peak-lr 5e-4

The learning rate follows the share of `--minutes` that is spent, so that a run on a slow or busy
machine still ends with a full decay. `best.pt` is chosen on the validation voices alone.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import jiwer
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3ASRForConditionalGeneration

from training.dataset import Batch, Shard, epoch, load_batch, open_shards
from training.decode import transcribe_mels
from training.masking import vary
from training.model import WindowedLayers, build_model, token_count
from training.prompt import PromptBuilder
from training.tokenizer import build_tokenizer
from training.voices import DIGITS

RUNS = Path(__file__).parent / "runs"
HOT_WORDS = (
    "account", "Amsterdam", "api", "balance", "Berlin", "call back", "code", "Dr. Smith",
    "extension", "flight", "four digits", "gate", "hello", "Hz", "invoice", "Kubernetes",
    "London", "meter", "Müller", "number", "nine", "order", "phone", "pin", "please", "postcode",
    "Qwen", "room", "serial", "seven", "street", "three", "total", "Wi-Fi", "zero", "2024", "42",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """All knobs of a run."""

    minutes: float = 80.0
    frames_per_batch: int = 7500
    peak_lr: float = 1.2e-3
    final_lr: float = 1e-5
    warmup_steps: int = 300
    easy_steps: int = 500
    easy_frames: int = 320
    weight_decay: float = 0.05
    ctc_weight: float = 0.5
    ema_decay: float = 0.998
    context_share: float = 0.12
    forced_share: float = 0.12
    bf16: bool = True
    save_every: int = 100
    valid_every: int = 500
    valid_clips: int = 240


@dataclass
class Progress:
    """What has been done so far."""

    step: int = 0
    seconds: float = 0.0
    epochs: int = 0
    best: float = math.inf
    history: list[dict[str, float]] = field(default_factory=list)


def learning_rate(plan: Plan, progress: Progress) -> float:
    """Linear warm-up by steps, then a cosine over the time budget."""
    warm = min(1.0, (progress.step + 1) / plan.warmup_steps)
    spent = min(1.0, progress.seconds / (60 * plan.minutes))
    cosine = 0.5 * (1 + math.cos(math.pi * spent))
    return warm * (plan.final_lr + (plan.peak_lr - plan.final_lr) * cosine)


class Trainee(nn.Module):
    """The model, the fast encoder over the same weights, and the helper head for CTC."""

    def __init__(self, model: Qwen3ASRForConditionalGeneration, prompts: PromptBuilder) -> None:
        super().__init__()
        self.model, self.prompts = model, prompts
        self.encoder = WindowedLayers(model)
        self.ctc_head = nn.Linear(model.config.audio_config.output_dim, len(DIGITS) + 1)

    def ctc_loss(self, rows: Tensor, lengths: Tensor, words: list[str]) -> Tensor:
        """CTC of the digit words over the audio embeddings; index 0 is the blank."""
        log_probs = self.ctc_head(rows.float()).log_softmax(-1).transpose(0, 1)
        targets = [[DIGITS.index(word) + 1 for word in each.split()] for each in words]
        sizes = torch.tensor([len(each) for each in targets])
        flat = torch.tensor([index for each in targets for index in each])
        return functional.ctc_loss(log_probs, flat, lengths, sizes, zero_infinity=True)

    def answer_loss(
        self, rows: Tensor, lengths: Tensor, sequences: list[tuple[list[int], list[int]]]
    ) -> Tensor:
        """Cross entropy of the answers after their prompts."""
        width = max(len(prompt) + len(answer) for prompt, answer in sequences)
        ids = torch.zeros(len(sequences), width, dtype=torch.long)
        labels = torch.full((len(sequences), width), -100)
        for row, (prompt, answer) in enumerate(sequences):
            ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            labels[row, len(prompt) - 1 : len(prompt) + len(answer) - 1] = torch.tensor(answer)
        embeds = self.model.get_input_embeddings()(ids)
        place = (ids == self.model.config.audio_token_id).unsqueeze(-1)
        valid = torch.arange(rows.shape[1]) < lengths[:, None]
        embeds = embeds.masked_scatter(place, rows[valid].to(embeds.dtype))
        hidden = self.model.model.language_model(
            inputs_embeds=embeds, use_cache=False
        ).last_hidden_state
        wanted = labels != -100
        return functional.cross_entropy(self.model.lm_head(hidden[wanted]).float(), labels[wanted])

    def forward(
        self, batch: Batch, sequences: list[tuple[list[int], list[int]]]
    ) -> tuple[Tensor, Tensor]:
        """Both losses of a batch."""
        encoded = self.encoder(batch.mel, batch.frames)
        answer = self.answer_loss(encoded.rows, encoded.lengths, sequences)
        return answer, self.ctc_loss(encoded.rows, encoded.lengths, batch.words)


def draw_context(rng: np.random.Generator) -> str:
    """A bare list of hot words."""
    count = int(rng.integers(1, 6))
    return str(rng.choice((", ", " ", "\n"))).join(rng.choice(HOT_WORDS, size=count))


def sequences_of(
    batch: Batch, prompts: PromptBuilder, plan: Plan, rng: np.random.Generator
) -> list[tuple[list[int], list[int]]]:
    """Prompt and answer of every clip, some with a context or a forced language."""
    sequences = []
    for tokens, words in zip(token_count(batch.frames).tolist(), batch.words, strict=True):
        context = draw_context(rng) if rng.random() < plan.context_share else ""
        forced = rng.random() < plan.forced_share
        sequences.append((prompts.prompt(tokens, context, forced), prompts.answer(words, forced)))
    return sequences


def average(ema: dict[str, Tensor], model: nn.Module, decay: float) -> None:
    """Move the running average of the weights one step."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            ema[name].lerp_(value, 1 - decay)


class Run:
    """One training run in its folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.progress = plan, folder, Progress()
        tokenizer = build_tokenizer()
        self.trainee = Trainee(build_model(tokenizer), PromptBuilder(tokenizer))
        decay = [p for p in self.trainee.parameters() if p.ndim > 1]
        plain = [p for p in self.trainee.parameters() if p.ndim <= 1]
        groups = [
            {"params": decay, "weight_decay": plan.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=plan.peak_lr, betas=(0.9, 0.98), fused=True)
        self.ema = {k: v.clone() for k, v in self.trainee.model.state_dict().items()}

    def start_from(self, path: Path) -> None:
        """Begin a new run with the weights of another one; schedule and optimiser are fresh."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.trainee.load_state_dict(state["trainee"])
        self.ema = state["ema"]

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.trainee.load_state_dict(state["trainee"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.ema = state["ema"]
        self.progress = Progress(**state["progress"])

    def save(self, name: str) -> None:
        """Write a checkpoint so that no half-written one can be read."""
        state = {
            "trainee": self.trainee.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema,
            "progress": asdict(self.progress),
            "plan": asdict(self.plan),
        }
        torch.save(state, self.folder / f"{name}.tmp")
        (self.folder / f"{name}.tmp").rename(self.folder / f"{name}.pt")

    def step(self, batch: Batch, rng: np.random.Generator) -> tuple[float, float]:
        """One optimiser step."""
        batch = vary(batch, rng)
        sequences = sequences_of(batch, self.trainee.prompts, self.plan, rng)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.plan, self.progress)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.plan.bf16):
            answer, ctc = self.trainee(batch, sequences)
        (answer + self.plan.ctc_weight * ctc).backward()
        nn.utils.clip_grad_norm_(self.trainee.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        decay = min(self.plan.ema_decay, (1 + self.progress.step) / (10 + self.progress.step))
        average(self.ema, self.trainee.model, decay)
        return float(answer.detach()), float(ctc.detach())

    def validate(self, shards: list[Shard]) -> float:
        """Word error rate of the averaged weights on the first clips of the validation voices."""
        model = build_model(self.trainee.prompts.tokenizer)
        model.load_state_dict(self.ema)
        lengths, texts = shards[0].lengths[: self.plan.valid_clips], shards[0].words
        order = [(0, int(i)) for i in np.argsort(lengths, kind="stable")]
        said, heard = [], []
        for start in range(0, len(order), 40):
            batch = load_batch(shards, order[start : start + 40])
            heard += transcribe_mels(model.eval(), self.trainee.prompts, batch)
            said += [texts[i] for _, i in order[start : start + 40]]
        spoken = [pair for pair in zip(said, heard, strict=True) if pair[0]]
        invented = sum(bool(h) for s, h in zip(said, heard, strict=True) if not s)
        print(f"  invented {invented} of {len(said) - len(spoken)}, {spoken[0]}")
        return float(jiwer.wer([s for s, _ in spoken], [h for _, h in spoken]))

    def check(self, valid: list[Shard]) -> None:
        """Validate, note the result, keep the best."""
        error = self.validate(valid)
        self.progress.history.append({"step": self.progress.step, "wer": error})
        if error < self.progress.best:
            self.progress.best = error
            self.save("best")
        self.save("last")
        (self.folder / "history.json").write_text(json.dumps(self.progress.history))
        print(f"step {self.progress.step} valid WER {100 * error:.1f}%", flush=True)

    def batches(self) -> Iterator[tuple[Batch, np.random.Generator]]:
        """Endless training batches; short clips first. Every epoch sees the shards that exist."""
        plan, progress = self.plan, self.progress
        while True:
            rng = np.random.default_rng((7, progress.step))
            easy = progress.step < plan.easy_steps
            shards = open_shards("train")
            longest = plan.easy_frames if easy else 10**9
            for members in epoch(shards, plan.frames_per_batch, rng, longest):
                yield load_batch(shards, members), rng
                if easy and progress.step >= plan.easy_steps:
                    break
            progress.epochs += 1

    def train(self) -> None:
        """Until the time budget is spent."""
        valid, progress, plan = open_shards("valid"), self.progress, self.plan
        losses: list[tuple[float, float]] = []
        for batch, rng in self.batches():
            begin = time.monotonic()
            losses.append(self.step(batch, rng))
            progress.step += 1
            progress.seconds += time.monotonic() - begin
            if progress.step % 50 == 0:
                self.report(losses)
            if progress.step % plan.save_every == 0:
                self.save("last")
            if progress.step % plan.valid_every == 0:
                self.check(valid)
            if progress.seconds >= 60 * plan.minutes:
                break
        self.check(valid)

    def report(self, losses: list[tuple[float, float]]) -> None:
        """Print the mean losses since the last report."""
        answer, ctc = np.mean(losses, axis=0)
        losses.clear()
        minutes, step = self.progress.seconds / 60, self.progress.step
        print(f"step {step} {minutes:.1f} min answer {answer:.3f} ctc {ctc:.3f}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="tiny-en")
    parser.add_argument("--minutes", type=float, default=Plan.minutes)
    parser.add_argument("--peak-lr", type=float, default=Plan.peak_lr)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--start", type=Path, help="a checkpoint whose weights to begin with")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = RUNS / args.name
    folder.mkdir(parents=True, exist_ok=True)
    easy_steps = Plan.easy_steps if args.start is None else 0
    run = Run(Plan(minutes=args.minutes, peak_lr=args.peak_lr, easy_steps=easy_steps), folder)
    if args.start is not None:
        run.start_from(args.start)
    if args.resume:
        run.load(folder / "last.pt")
    run.train()


if __name__ == "__main__":
    main()
