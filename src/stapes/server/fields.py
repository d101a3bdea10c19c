"""The fields of requests. What is not listed here is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from stapes.output.sound_stream import StreamFormat
from stapes.server.failures import WrongPairError, of_validation

Named = TypeVar("Named", bound="Fields")
_MOST_STOPS = 16
_MOST_CHARACTERS = 4096  # that OpenAI's speech takes; a voice speaks for one client at a time
_MOST_SEED = 2**63 - 1
_MOST_STEPS = 128  # of flow matching: four times what the publisher's code takes


class Fields(BaseModel):
    """Fields of a request; unknown ones are errors."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def read_fields(kind: type[Named], given: Mapping[str, Any] | bytes) -> Named:
    """Fields of a form, or of a JSON body. ApiError, naming the field, when one is wrong."""
    try:
        if isinstance(given, bytes):
            return kind.model_validate_json(given)
        return kind.model_validate(given)
    except ValidationError as error:
        raise of_validation(error) from None


# -- forms ---------------------------------------------------------------------------------------


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Language = Annotated[str | None, BeforeValidator(_none_if_empty)]
ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]


class TranscriptionFields(Fields):
    """POST /v1/audio/transcriptions, beside its file. `vad` is ours."""

    model: str
    language: Language = None
    prompt: str = ""
    response_format: ResponseFormat = "json"
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.0
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]], BeforeValidator(_as_list)
    ] = []
    stream: bool = False
    vad: bool = True
    chunking_strategy: Literal["auto"] | None = None  # what is always done

    @model_validator(mode="after")
    def _together(self) -> TranscriptionFields:
        if self.timestamp_granularities and self.response_format != "verbose_json":
            raise WrongPairError(
                "timestamp_granularities", "needs the response_format verbose_json"
            )
        if self.stream and self.response_format not in ("json", "text", "verbose_json"):
            raise WrongPairError("stream", "needs the response_format json, text or verbose_json")
        return self


class AlignmentFields(Fields):
    """POST /v1/audio/alignments, beside its file."""

    text: Annotated[str, Field(min_length=1)]
    model: str | None = None
    language: Language = None


# -- JSON ----------------------------------------------------------------------------------------


class _TextPart(Fields):
    type: Literal["text"]
    text: str


def _plain_content(value: Any) -> Any:
    """The text of a content that is a list of text parts."""
    if not isinstance(value, list):
        return value
    return "".join(_TextPart.model_validate(part).text for part in value)


def _role(role: str) -> str:
    """The name that chat templates know."""
    return "system" if role == "developer" else role


class ChatMessage(Fields):
    """One message of a chat."""

    role: Annotated[Literal["system", "developer", "user", "assistant"], AfterValidator(_role)]
    content: Annotated[str, BeforeValidator(_plain_content)]


class StreamOptions(Fields):
    """What a stream holds beside the answer."""

    include_usage: bool | None = None


class _ResponseFormat(Fields):
    type: Literal["text"]


def _stops(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


Zero = Annotated[float, Field(ge=0, le=0)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_stops),
    Field(max_length=_MOST_STOPS),
]


class WritingFields(Fields):
    """What chats and plain completions have in common.

    top_k and repetition_penalty are ours; the fields that can have one value only are those that
    clients send although it is the default.
    """

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] = 1.0
    seed: Annotated[int, Field(ge=0)] | None = None
    stop: Stop = []
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> WritingFields:
        if self.stream_options is not None and not self.stream:
            raise WrongPairError("stream_options", "needs stream")
        return self

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with its counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatFields(WritingFields):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Literal[False] | None = None
    response_format: _ResponseFormat | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> ChatFields:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise WrongPairError("max_tokens", "is the old name of max_completion_tokens: give one")
        return self


class CompletionFields(WritingFields):
    """POST /v1/completions."""

    prompt: Annotated[str, Field(min_length=1)]
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: None = None
    suffix: None = None


def _voice_name(value: Any) -> Any:
    """The name of a voice that is given as an object, as OpenAI's custom voices are."""
    return value["id"] if isinstance(value, dict) and set(value) == {"id"} else value


def _speakable(text: str) -> str:
    if not any(c.isalnum() for c in text):
        raise ValueError("there is nothing in it that could be spoken")
    return text


One = Annotated[float, Field(ge=1, le=1)]


class SpeechFields(Fields):
    """POST /v1/audio/speech. `seed` and `steps` are ours."""

    model: str
    input: Annotated[str, Field(max_length=_MOST_CHARACTERS), AfterValidator(_speakable)]
    voice: Annotated[str, BeforeValidator(_voice_name)]
    response_format: StreamFormat = "mp3"
    stream_format: Literal["audio", "sse"] = "audio"
    speed: One | None = None  # the model cannot
    instructions: Annotated[str, Field(max_length=0)] | None = None  # nor this
    seed: Annotated[int, Field(ge=0, le=_MOST_SEED)] | None = None
    steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
