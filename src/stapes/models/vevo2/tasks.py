"""What Vevo2 can be asked to do, and which sound each task needs for what.

A sound may be needed as prosody (melody and rhythm to follow), as style (a voice's way of speaking
or singing, with its text) and as timbre (how the result sounds). The autoregressive stage writes
content-style codes from text, prosody and style; a task that preserves the style of its source has
no use for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stapes.errors import RequestError

#: Where a sound comes from: the recording that is worked on, a melody, a reference for the style,
#: one for the timbre.
Sound = Literal["source", "melody", "style", "timbre"]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: as it is asked for.
        prosody: the sound whose prosody codes the prompt holds; None: the model chooses.
        style: the sound that is continued, in codes and text; None: there may be one, or none.
        timbre: the sounds that may give the timbre, the usual one first.
        pitch_shift: whether the prosody's pitch is moved to that of the timbre.
        autoregressive: whether the AR writes the codes; otherwise they are those of the source.
    """

    name: str
    prosody: Sound | None
    style: Sound | None
    timbre: tuple[Sound, ...]
    pitch_shift: bool
    autoregressive: bool = True


_TASKS = (
    Task("text_to_speech", None, None, ("style", "timbre"), False),
    Task("text_to_singing", None, None, ("style", "timbre"), False),
    Task("singing_voice_synthesis", None, None, ("style", "timbre"), False),
    Task("editing", "source", "source", ("source",), False),
    Task("singing_style_conversion", "source", "style", ("source",), True),
    Task("humming_to_singing", "melody", None, ("timbre",), True),
    Task("instrument_to_singing", "melody", None, ("timbre",), True),
    Task("style_converted_voice_conversion", "source", "style", ("source", "timbre"), False),
    Task("style_converted_singing_conversion", "source", "style", ("source", "timbre"), True),
    Task("style_preserved_voice_conversion", None, None, ("timbre",), True, False),
    Task("style_preserved_singing_conversion", None, None, ("timbre",), True, False),
)

TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def find_task(name: str) -> Task:
    """The task of a name; RequestError, listing the names, when there is none."""
    if name not in TASKS:
        raise RequestError(f"There is no task {name!r}; there are {', '.join(TASKS)}.")
    return TASKS[name]
