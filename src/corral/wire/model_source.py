"""Source of a model: a path, an object store, a repository of Hugging Face, or a file
of a web server."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from shlex import quote
from typing import Final

from corral.wire.field_readers import WrongValue, shown

_REPOSITORY: Final = r"(?:\w[\w.-]*/)?\w[\w.-]*"
_HF: Final = re.compile(
    rf"hf://(?P<repository>{_REPOSITORY})(?:@(?P<revision>\w[\w./-]*))?", re.ASCII
)
_BARE_HF: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*(?:@\w[\w./-]*)?", re.ASCII)
_HTTP: Final = re.compile(
    r"(?P<url>https?://[!-\"$-~]+)(?:#(?P<fragment>[!-~]*))?", re.ASCII
)
_PINNED: Final = re.compile(r"sha256=(?P<sha256>[0-9a-f]{64})", re.ASCII)
_S3: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]+/[!-~]*[!-.0-~]/?", re.ASCII)
MODEL_VARIABLE: Final = "CORRAL_MODEL"  # path of the model, in the ranks
_PATH_BEGINNINGS: Final = ("/", "./", "../", "~/")
MOST_CHARACTERS: Final = 1_000
# endings of files of weights, which are no part of a model's name
_ENDINGS: Final = (".gguf", ".pt", ".safetensors")
MODEL_HINT: Final = (
    "write a path: model: /data/model, or: model: hf://org/name, or: "
    "model: s3://bucket/model"
)


class SourceKind(StrEnum):
    """Source of a model."""

    PATH = "a path"
    HF = "hf://org/name"
    S3 = "s3://bucket/path"
    HTTP = "https://host/file#sha256=..."

    @property
    def is_fetched(self) -> bool:
        """Whether nodes fetch the model and keep it; a path is there already."""
        return self is not SourceKind.PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Place where the engine of a replica finds its model.

    Args:
        location: The path, the URL, or the repository without hf://.
        revision: Branch, tag or commit of a repository; "": its main branch. For a file
            of a web server its SHA-256.
    """

    kind: SourceKind
    location: str
    revision: str = ""

    @property
    def name(self) -> str:
        """Return the name of the model: org/name of a repository, else the last part of
        the path, without the ending of a file of weights."""
        if self.kind is SourceKind.HF:
            return self.location
        last_part = PurePosixPath(self.location.partition("?")[0]).name
        ending = next(filter(last_part.lower().endswith, _ENDINGS), "")
        return last_part[: len(last_part) - len(ending)]

    @property
    def is_relative(self) -> bool:
        """Whether the path begins in the workdir."""
        return self.kind is SourceKind.PATH and not self.location.startswith(
            ("/", "~/")
        )

    @property
    def shell_word(self) -> str:
        """Return where the engine finds the model, as one word of a shell command. A
        model that the node has fetched is at the path in a variable."""
        if self.kind.is_fetched:
            return f'"${MODEL_VARIABLE}"'
        if self.kind is SourceKind.PATH and self.location.startswith("~/"):
            return '"$HOME"/' + quote(self.location.removeprefix("~/"))
        return quote(self.location)


def adapter_variable(number: int) -> str:
    """Return the variable with the path of a fetched adapter, in the ranks. The first
    one has the number 1."""
    return f"CORRAL_ADAPTER_{number}"


def is_model_source(text: str) -> bool:
    """Return whether the text says where a model lies, and is not only its name."""
    return "://" in text or text.startswith(_PATH_BEGINNINGS)


def read_model(value: object) -> str:
    """Return the text of a model's source. Raises: WrongValue."""
    if not isinstance(value, str):
        raise WrongValue(
            f"{shown(value)} does not say where the model lies", MODEL_HINT
        )
    model_source_of(value)
    return value


def model_source_of(text: str) -> ModelSource:
    """Return the source of a model: a path, hf://org/name@revision, s3://bucket/path or
    https://host/file#sha256=HASH.

    Raises: WrongValue.
    """
    if len(text) > MOST_CHARACTERS:
        raise WrongValue(
            f"a model's source has at most {MOST_CHARACTERS:,} characters", MODEL_HINT
        )
    if match := _HF.fullmatch(text):
        return ModelSource(
            kind=SourceKind.HF,
            location=match["repository"],
            revision=match["revision"] or "",
        )
    if _S3.fullmatch(text):
        return ModelSource(kind=SourceKind.S3, location=text.rstrip("/"))
    if match := _HTTP.fullmatch(text):
        return _http_source(text, match["url"], match["fragment"] or "")
    is_path = text.startswith(_PATH_BEGINNINGS) and text.isprintable()
    if is_path and PurePosixPath(text).name not in ("", ".."):
        return ModelSource(kind=SourceKind.PATH, location=text)
    hint = MODEL_HINT
    if _BARE_HF.fullmatch(text):
        hint = f"write: model: hf://{text}, or a path: model: ./{text}"
    raise WrongValue(f"{shown(text)} does not say where the model lies", hint)


def _http_source(text: str, url: str, fragment: str) -> ModelSource:
    """Return the source of a file of a web server. Raises: WrongValue without a hash."""
    match = _PINNED.fullmatch(fragment)
    if match is None:
        fault = "has no SHA-256, so a changed file would not be noticed"
        if fragment.startswith("sha256="):
            digits = shown(fragment.removeprefix("sha256="))
            fault = f"has a SHA-256 that is not 64 digits of 0-9 and a-f: {digits}"
        raise WrongValue(
            f"{shown(text)} {fault}",
            "write the file's SHA-256 behind it: model: "
            "https://host/model.gguf#sha256=HASH; to compute it, run: sha256sum FILE",
        )
    return ModelSource(kind=SourceKind.HTTP, location=url, revision=match["sha256"])
