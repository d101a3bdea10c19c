"""What is asked of Vevo2: a task, its text and its recordings; and how it is to be done."""

from __future__ import annotations

from dataclasses import dataclass

from stapes.errors import RequestError
from stapes.models.vevo2.acoustic.flow_matching import FlowOptions
from stapes.models.vevo2.autoregressive.options import CodeOptions
from stapes.models.vevo2.autoregressive.tokens import CONTENT_STYLE_HZ
from stapes.models.vevo2.reference import Reference
from stapes.models.vevo2.tasks import Sound, Task, find_task

_MOST_SEEDS = 2**63 - 1
_LOUDEST_DB = 0.0
_QUIETEST_DB = -90.0

#: What messages call the recordings: a user of the commands knows the timbre as the voice.
_ROLES: dict[Sound, str] = {
    "source": "the source",
    "melody": "the melody",
    "style": "the style",
    "timbre": "the voice",
}


@dataclass(frozen=True)
class VoiceOptions:
    """How a sound is made. The defaults are those of the publisher's code.

    Attributes:
        seed: makes the samples repeat, bit for bit; None takes another one each time, which the
            result tells.
        steps, guidance: of flow matching; see `FlowOptions` (guidance is its cfg).
        temperature, top_k, top_p, repetition_penalty, codes_only, max_new_tokens: of the
            autoregressive stage; see `CodeOptions`.
        pitch_steps: semitones by which prosody, style and source are shifted. None estimates them
            from the pitch of both voices where the task asks for it; 0 shifts nothing.
        duration_s: how long the prosody is to take, for tasks that have one; None: as recorded.
        level_db: RMS level of the result relative to full scale, -25 as the publisher's scripts
            save it; None leaves the vocoder's.
        longest_piece: most characters that are spoken in one piece; wide ones count threefold.

    Raises:
        RequestError: naming the field and its value.
    """

    seed: int | None = None
    steps: int = 32
    guidance: float = 1.0
    temperature: float = 1.0
    top_k: int | None = 25
    top_p: float = 0.8
    repetition_penalty: float | None = None
    codes_only: bool = False
    max_new_tokens: int = 500
    pitch_steps: int | None = None
    duration_s: float | None = None
    level_db: float | None = -25.0
    longest_piece: int = 200

    def __post_init__(self) -> None:
        _check_whole("seed", self.seed, 0, _MOST_SEEDS)
        _check_whole("pitch_steps", self.pitch_steps, -60, 60)
        _check_whole("longest_piece", self.longest_piece, 10, 1000)
        _check_between("duration_s", self.duration_s, 0.1, self.longest_answer_s)
        _check_between("level_db", self.level_db, _QUIETEST_DB, _LOUDEST_DB)
        self.flow(0), self.codes(0)  # which check the others

    @property
    def longest_answer_s(self) -> float:
        """Seconds of sound that the autoregressive stage writes at most (40)."""
        return self.max_new_tokens / CONTENT_STYLE_HZ

    def flow(self, seed: int) -> FlowOptions:
        """How a mel is drawn."""
        return FlowOptions(steps=self.steps, cfg=self.guidance, seed=seed)

    def codes(self, seed: int) -> CodeOptions:
        """How codes are drawn."""
        return CodeOptions(
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=min(15, self.max_new_tokens),
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            seed=seed,
            codes_only=self.codes_only,
        )


@dataclass(frozen=True, eq=False)
class VoiceRequest:
    """One task with its text and recordings.

    Attributes:
        task: one of `tasks.TASKS`.
        text: what is to be said or sung; "" for tasks that keep the words of their source.
        source: what is edited or converted.
        melody: whose melody and rhythm are followed.
        style: whose way of speaking is taken on, with its text.
        timbre: whose voice is heard. Without a style, tasks of text alone take the style from it.

    Raises:
        RequestError: a recording or text that the task needs is missing, or one is there that it
            has no use for.
    """

    task: str
    text: str = ""
    source: Reference | None = None
    melody: Reference | None = None
    style: Reference | None = None
    timbre: Reference | None = None

    def __post_init__(self) -> None:
        task = find_task(self.task)
        self._check_recordings(task)
        if not isinstance(self.text, str):
            raise RequestError(f"The text must be text, not {type(self.text).__name__}.")
        if not task.autoregressive and self.text.strip():
            raise RequestError(f"{self.task} keeps the words of its source and takes no text.")
        if task.autoregressive and not any(character.isalnum() for character in self.text):
            raise RequestError(f"{self.task} needs a text with a letter or digit in it.")
        self._check_texts(task)

    def sound(self, name: Sound) -> Reference | None:
        """A recording by the role that `tasks` names."""
        return {"source": self.source, "melody": self.melody, "style": self.style}.get(
            name, self.timbre
        )

    @property
    def style_sound(self) -> Reference | None:
        """The recording that the autoregressive stage continues.

        Where text is all that is asked for, the voice's own recording is continued unless a style
        is given: its text alone would be read aloud.
        """
        task = find_task(self.task)
        if not task.autoregressive:
            return None
        if task.style is not None:
            return self.sound(task.style)
        if task.prosody is not None:
            return self.style
        return self.style or self.timbre

    @property
    def timbre_sound(self) -> Reference:
        """The recording whose voice is heard."""
        task = find_task(self.task)
        chosen = self.timbre or next(filter(None, map(self.sound, task.timbre)), None)
        assert chosen is not None, "checked when the request was made"
        return chosen

    def _check_recordings(self, task: Task) -> None:
        for name in needed(task):
            if self.sound(name) is None:
                raise RequestError(f"{task.name} needs a recording for {_ROLES[name]}.")
        if not any(map(self.sound, task.timbre)):
            roles = " or ".join(_ROLES[name] for name in reversed(task.timbre))
            raise RequestError(f"{task.name} needs a recording for {roles}.")
        for name in ("source", "melody", "style", "timbre"):
            if self.sound(name) is not None and name not in used(task):
                raise RequestError(f"{task.name} has no use for a recording for {_ROLES[name]}.")

    def _check_texts(self, task: Task) -> None:
        style = self.style_sound
        if task.style is not None and style is not None and not style.text.strip():
            raise RequestError(
                f"{task.name} needs the text of the recording for {_ROLES[task.style]} "
                f"({style.name}): the model continues it in words and in sound."
            )


def needed(task: Task) -> tuple[Sound, ...]:
    """The recordings that a task cannot do without; of those for its timbre, one will do."""
    source: tuple[Sound | None, ...] = () if task.autoregressive else ("source",)
    found = dict.fromkeys((*source, task.prosody, task.style))
    return tuple(name for name in found if name is not None)


def used(task: Task) -> tuple[Sound, ...]:
    """All recordings that a task may be given."""
    optional: tuple[Sound, ...] = ("style",) if task.autoregressive and task.style is None else ()
    return tuple(dict.fromkeys((*needed(task), *optional, *task.timbre)))


def _check_whole(name: str, value: int | None, least: int, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RequestError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")


def _check_between(name: str, value: float | None, least: float, most: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise RequestError(f"{name} must lie between {least:g} and {most:g}, not {value!r}.")
