"""The model of a service: a path, an object store or a repository of Hugging Face."""

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
_S3: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]+/[!-~]*[!-.0-~]/?", re.ASCII)
_PATH_BEGINNINGS: Final = ("/", "./", "../", "~/")
# endings of files of weights, which are no part of a model's name
_ENDINGS: Final = (".gguf", ".pt", ".safetensors")
MODEL_HINT: Final = (
    "write a path: model: /data/model, or: model: hf://org/name, or: "
    "model: s3://bucket/model"
)


class SourceKind(StrEnum):
    """Where a model lies."""

    PATH = "a path"
    HF = "hf://org/name"
    S3 = "s3://bucket/path"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where the engine of a replica finds its model.

    Args:
        location: The path, the URL, or the repository without hf://.
        revision: Branch, tag or commit of a repository; "": its main branch.
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
        last_part = PurePosixPath(self.location).name
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
        """Return the location as one word of a shell command."""
        if self.kind is SourceKind.PATH and self.location.startswith("~/"):
            return '"$HOME"/' + quote(self.location.removeprefix("~/"))
        return quote(self.location)


def is_model_source(text: str) -> bool:
    """Return whether the text says where a model lies, and is not only its name."""
    return "://" in text or text.startswith(_PATH_BEGINNINGS)


def model_source_of(text: str) -> ModelSource:
    """Return the source of a model: a path, hf://org/name@revision or s3://bucket/path.

    Raises: WrongValue.
    """
    if match := _HF.fullmatch(text):
        return ModelSource(
            kind=SourceKind.HF,
            location=match["repository"],
            revision=match["revision"] or "",
        )
    if _S3.fullmatch(text):
        return ModelSource(kind=SourceKind.S3, location=text.rstrip("/"))
    is_path = text.startswith(_PATH_BEGINNINGS) and text.isprintable()
    if is_path and PurePosixPath(text).name not in ("", ".."):
        return ModelSource(kind=SourceKind.PATH, location=text)
    hint = MODEL_HINT
    if _BARE_HF.fullmatch(text):
        hint = f"write: model: hf://{text}, or a path: model: ./{text}"
    raise WrongValue(f"{shown(text)} does not say where the model lies", hint)
