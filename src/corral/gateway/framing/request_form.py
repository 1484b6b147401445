"""Bodies of the type multipart/form-data: the fields that decide, found between files."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from corral.gateway.framing.request_body import BodyFields
from corral.gateway.openai_errors import GatewayCode, HeadRefused, refused

MOST_PARTS: Final = 64
PART_HEAD_BYTES: Final = 4096
FIELD_BYTES: Final = 1024
_BOUNDARY: Final = re.compile(
    rb"multipart/form-data;(?:[^;]*;)*\s*boundary="
    rb"(?:\"([0-9A-Za-z'()+_,\-./:=? ]{1,70})\"|([0-9A-Za-z'()+_,\-./:=?]{1,70}))"
    rb"\s*(?:;.*)?",
    re.IGNORECASE,
)
_NAME: Final = re.compile(
    rb"content-disposition:\s*form-data;(?:[^\r\n]*;)?\s*name=\"([^\"\r\n]*)\"",
    re.IGNORECASE,
)


class FormPart(NamedTuple):
    """Part of a form: its name, and where its value is in the body."""

    name: bytes
    begin: int
    end: int


def read_form(content_type: bytes, body: bytes) -> BodyFields:
    """Return the fields of a form that decide. Raises: HeadRefused."""
    model = _field(content_type, body, b"model")
    if model is None or model.begin == model.end:
        raise refused(GatewayCode.BAD_REQUEST, "the form needs a model", param="model")
    stream = _field(content_type, body, b"stream")
    try:
        name = body[model.begin : model.end].decode()
    except UnicodeDecodeError:
        raise refused(
            GatewayCode.BAD_REQUEST, "model is not valid UTF-8", param="model"
        ) from None
    is_stream = stream is not None and (
        body[stream.begin : stream.end].strip().lower() in (b"true", b"1")
    )
    return BodyFields(model=name, stream=is_stream)


def form_with_model(content_type: bytes, body: bytes, model: str) -> bytes:
    """Return the form with another name of the model. Raises: HeadRefused."""
    part = _field(content_type, body, b"model")
    assert part is not None
    return body[: part.begin] + model.encode() + body[part.end :]


def _field(content_type: bytes, body: bytes, name: bytes) -> FormPart | None:
    parts = [part for part in _parts(content_type, body) if part.name == name]
    if len(parts) > 1 or any(part.end - part.begin > FIELD_BYTES for part in parts):
        text = name.decode()
        raise refused(
            GatewayCode.BAD_REQUEST, f"{text} is there twice or too long", param=text
        )
    return parts[0] if parts else None


def _parts(content_type: bytes, body: bytes) -> Iterator[FormPart]:
    mark = b"--" + boundary_of(content_type)
    if not body.startswith(mark + b"\r\n"):
        raise form_not_valid()
    at = len(mark)
    for _ in range(MOST_PARTS):
        if body.startswith(b"--", at):
            return
        head_end = body.find(b"\r\n\r\n", at, at + PART_HEAD_BYTES)
        end = body.find(b"\r\n" + mark, head_end + 2) if head_end >= 0 else -1
        if end < 0 or not body.startswith(b"\r\n", at):
            raise form_not_valid()
        name = name_of_part(body, at, head_end)
        yield FormPart(name, min(head_end + 4, end), end)
        at = end + 2 + len(mark)
    raise refused(GatewayCode.BAD_REQUEST, f"a form has at most {MOST_PARTS} parts")


def boundary_of(content_type: bytes) -> bytes:
    """Return the boundary of a form's parts. Raises: HeadRefused."""
    match = _BOUNDARY.fullmatch(content_type)
    if match is None:
        raise refused(
            GatewayCode.BAD_REQUEST,
            "expected a form: multipart/form-data with boundary",
        )
    return match[1] or match[2]


def name_of_part(body: bytes | bytearray, begin: int, end: int) -> bytes:
    """Return the name in the head of a part; empty without one."""
    match = _NAME.search(body, begin, end)
    return bytes(match[1]) if match else b""


def form_not_valid() -> HeadRefused:
    """Return the refusal of a form that cannot be read."""
    return refused(GatewayCode.BAD_REQUEST, "the form is not valid")
