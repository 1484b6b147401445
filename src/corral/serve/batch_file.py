"""Input file of a batch: one request a line, in the form of OpenAI's Batch API."""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from corral.domain.batch import BatchFault

URLS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
)
MOST_LINES: Final = 50_000
MOST_FILE_BYTES: Final = 200_000_000
MOST_ID_LETTERS: Final = 512
SHOWN_FAULTS: Final = 10
SHOWN_LETTERS: Final = 80  # of a value that is wrong
BLOCK_LETTERS: Final = 256  # of a prompt; lines that share blocks are sent in a row
MOST_BLOCKS: Final = 64
_BAD_JSON: Final = "invalid_json_line"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class BatchFileInvalid(Exception):
    """An input file that cannot be a batch. `faults` name the lines."""

    def __init__(self, faults: list[BatchFault]) -> None:
        shown = "\n".join(fault.text for fault in faults[:SHOWN_FAULTS])
        more = len(faults) - SHOWN_FAULTS
        super().__init__(f"{shown}\nand {more:,} more" if more > 0 else shown)
        self.faults = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One request of a batch, and where its text is in the file.

    Args:
        number: Line of the file, from 1.
        model: Model that the line names; None: it names none.
        prefix: Digests of the blocks of its prompt. Sorted by them, lines whose prompts
            begin alike are neighbours.
    """

    number: int
    custom_id: str
    offset: int
    size_bytes: int
    prefix: bytes
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """A request as it is sent: the path, and the JSON text of its body."""

    url: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """Rules that the lines of a file must keep.

    Args:
        models: Names under which the service may be called; None: they are not checked.
        endpoint: The only url; None: each of URLS may occur.
        is_of_one_model: Whether each line must name a model, and all the same one.
    """

    models: Collection[str] | None = None
    endpoint: str | None = None
    is_of_one_model: bool = False


class _LineInvalid(Exception):
    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


def read_batch(path: Path, rules: BatchRules = BatchRules()) -> list[BatchLine]:  # noqa: B008 - frozen
    """Return the lines of a batch, in the order of the file.

    Raises: BatchFileInvalid, OSError.
    """
    size_bytes = path.stat().st_size
    if size_bytes > MOST_FILE_BYTES:
        reason = f"the file has {size_bytes:,} bytes; at most {MOST_FILE_BYTES:,} fit"
        raise BatchFileInvalid([BatchFault("file_too_large", reason)])
    lines: list[BatchLine] = []
    faults: list[BatchFault] = []
    numbers: dict[str, int] = {}
    for number, offset, text in _texts(path):
        try:
            fields = _checked_fields(text, rules)
            custom_id, model = fields["custom_id"], fields["body"].get("model")
            if custom_id in numbers:
                raise _LineInvalid(
                    "duplicate_custom_id",
                    f"the custom_id {_shown(custom_id)} is also on line "
                    f"{numbers[custom_id]}",
                    "custom_id",
                )
            if rules.is_of_one_model and lines and model != lines[0].model:
                raise _LineInvalid(
                    "mismatched_model",
                    f"the model {_shown(model)} differs from {_shown(lines[0].model)} "
                    "of the first line: all lines of a file have the same one",
                    "body.model",
                )
        except _LineInvalid as error:
            faults.append(BatchFault(error.code, str(error), number, error.param))
            continue
        numbers[custom_id] = number
        line = BatchLine(
            number=number,
            custom_id=custom_id,
            offset=offset,
            size_bytes=len(text),
            prefix=prefix_of(fields["url"], fields["body"]),
            model=sys.intern(model) if isinstance(model, str) else None,
        )
        lines.append(line)
    if not lines and not faults:
        faults.append(BatchFault("empty_file", "the file has no lines"))
    if len(lines) > MOST_LINES:
        reason = f"the file has {len(lines):,} lines; at most {MOST_LINES:,} fit"
        faults.append(BatchFault("too_many_requests", reason))
    if faults:
        raise BatchFileInvalid(faults)
    return lines


def _texts(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the (number, offset, text) of each line that is not empty."""
    offset = 0
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            begin = len(_BYTE_ORDER_MARK) if _has_mark(number, text) else 0
            if text[begin:].strip():
                yield number, offset + begin, text[begin:]
            offset += len(text)


def _has_mark(number: int, text: bytes) -> bool:
    return number == 1 and text.startswith(_BYTE_ORDER_MARK)


def _checked_fields(text: bytes, rules: BatchRules) -> dict[str, Any]:
    """Return the fields of a line. Raises: _LineInvalid."""
    fields = _parsed(text)
    if not isinstance(fields, dict):
        raise _LineInvalid(_BAD_JSON, "expected a JSON object")
    custom_id, url, body = (fields.get(name) for name in ("custom_id", "url", "body"))
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MOST_ID_LETTERS:
        raise _LineInvalid(
            "invalid_custom_id",
            f"custom_id must be text of 1 to {MOST_ID_LETTERS} characters",
            "custom_id",
        )
    if fields.get("method") != "POST":
        raise _LineInvalid("invalid_method", "method must be POST", "method")
    _check_url(url, rules.endpoint)
    if not isinstance(body, dict):
        raise _LineInvalid("invalid_body", "body must be a JSON object", "body")
    if body.get("stream"):
        raise _LineInvalid(
            "invalid_body",
            "body.stream must not be set: answers are written whole",
            "body.stream",
        )
    _check_model(body, rules)
    return fields


def _check_url(url: object, endpoint: str | None) -> None:
    if url not in URLS:
        text = f"the url {_shown(url)} must be one of {', '.join(URLS)}"
        raise _LineInvalid("invalid_url", text, "url")
    if endpoint is not None and url != endpoint:
        text = f"the url {_shown(url)} differs from the batch's endpoint {endpoint}"
        raise _LineInvalid("mismatched_endpoint", text, "url")


def _check_model(body: Mapping[str, Any], rules: BatchRules) -> None:
    model = body.get("model")
    if rules.is_of_one_model and (not isinstance(model, str) or not model):
        text = "body.model must be the name of a model"
        raise _LineInvalid("missing_model", text, "body.model")
    if model is None or rules.models is None:
        return
    name = model.partition("@")[0] if isinstance(model, str) else ""
    if model not in rules.models and name not in rules.models:
        raise _LineInvalid(
            "model_not_found",
            f"the model {_shown(model)} is not one of the service: "
            f"{', '.join(sorted(rules.models))}",
            "body.model",
        )


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text.rstrip(), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg}, column {error.colno}"
    except UnicodeDecodeError:
        reason = "not valid UTF-8"
    except RecursionError:
        reason = "not valid JSON: nested too deeply"
    raise _LineInvalid(_BAD_JSON, reason)


def _refuse_constant(name: str) -> object:
    raise _LineInvalid(_BAD_JSON, f"not valid JSON: {name}")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."


def prefix_of(url: str, body: Mapping[str, Any]) -> bytes:
    """Return the digests of the blocks of a prompt, four bytes each."""
    prompt = [body.get(name) for name in ("messages", "prompt", "input")]
    text = json.dumps([url, body.get("model"), body.get("tools"), *prompt]).encode()
    blocks = range(0, min(len(text), BLOCK_LETTERS * MOST_BLOCKS), BLOCK_LETTERS)
    return b"".join(
        crc32(text[begin : begin + BLOCK_LETTERS]).to_bytes(4, "big")
        for begin in blocks
    )


def in_prefix_order(lines: list[BatchLine]) -> list[BatchLine]:
    """Return the lines so that prompts which begin alike follow each other."""
    return sorted(lines, key=lambda line: (line.prefix, line.number))


class BatchRequests:
    """Requests of a file, read one by one.

    Args:
        model: Model of the lines that name none.
    """

    def __init__(self, path: Path, model: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._model = model

    def request_of(self, line: BatchLine) -> BatchRequest:
        """Read the request of a line. Raises: OSError."""
        fields = json.loads(os.pread(self._file, line.size_bytes, line.offset))
        body = {"model": self._model, **fields["body"]}
        if body["model"] is None:
            body["model"] = self._model
        return BatchRequest(url=fields["url"], body=json.dumps(body).encode())
