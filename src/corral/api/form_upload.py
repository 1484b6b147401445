"""Bodies of the type multipart/form-data with one file, read piece by piece: the file is
passed on as it arrives, and is never in memory as a whole."""

import re
from collections.abc import AsyncIterator
from typing import Final

from corral.api.errors import RequestInvalid

FORM_TYPE: Final = "multipart/form-data"
PART_HEAD_BYTES: Final = 4096
FIELD_BYTES: Final = 4096
MOST_FIELDS: Final = 32
_BOUNDARY: Final = re.compile(
    r"multipart/form-data;(?:[^;]*;)*\s*boundary=(?:\"([^\"]{1,70})\"|([^\s;\"]{1,70}))",
    re.IGNORECASE,
)
_NAME: Final = re.compile(rb"name=\"([^\"\r\n]*)\"")
_FILE_NAME: Final = re.compile(rb"filename=\"([^\"\r\n]*)\"")


def is_form(content_type: str) -> bool:
    """Return whether a body of this type is a form."""
    return content_type.lower().startswith(FORM_TYPE)


class FileForm:
    """Reader of one form.

    Attributes:
        fields: Values of the fields that have been read.
        file_name: Name of the file; None: none has come yet.
    """

    def __init__(self, content_type: str, pieces: AsyncIterator[bytes]) -> None:
        match = _BOUNDARY.match(content_type)
        if match is None:
            raise RequestInvalid(
                "the Content-Type of a form needs a boundary",
                hint="use a client for OpenAI's API, or: curl -F file=@FILE -F purpose=batch",
            )
        self.fields: dict[str, str] = {}
        self.file_name: str | None = None
        self._mark = b"\r\n--" + (match[1] or match[2]).encode()
        self._pieces = pieces
        self._buffer = b"\r\n"  # so that the first mark looks like the others
        self._has_ended = False

    async def file(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the file named `file`. Fields before and after it are in
        `fields` when all was read. Raises: RequestInvalid."""
        await self._read_to(self._mark)
        while await self._has_part():
            head = await self._read_to(b"\r\n\r\n", PART_HEAD_BYTES)
            name = _NAME.search(head.replace(b"filename=", b""))
            file_name = _FILE_NAME.search(head)
            if name is None:
                raise _invalid("a part has no name")
            if file_name is None:
                value = await self._read_to(self._mark, FIELD_BYTES)
                self._add_field(name[1], value)
                continue
            if name[1] != b"file" or self.file_name is not None:
                raise _invalid("it has another file than: file")
            self.file_name = file_name[1].decode(errors="replace")
            async for piece in self._part():
                yield piece
        if self.file_name is None:
            raise _invalid("it has no file")

    def _add_field(self, name: bytes, value: bytes) -> None:
        if len(self.fields) >= MOST_FIELDS:
            raise _invalid(f"it has more than {MOST_FIELDS} fields")
        self.fields[name.decode(errors="replace")] = value.decode(errors="replace")

    async def _has_part(self) -> bool:
        """Return whether another part follows a mark."""
        while len(self._buffer) < 2:
            await self._read_more()
        if self._buffer.startswith(b"--"):
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise _invalid("a boundary is not followed by a part")
        self._buffer = self._buffer[2:]
        return True

    async def _part(self) -> AsyncIterator[bytes]:
        """Yield the pieces of a part until the next mark."""
        mark = self._mark
        while (at := self._buffer.find(mark)) < 0:
            # the end may be the beginning of a mark
            whole = len(self._buffer) - len(mark) + 1
            if whole > 0:
                yield self._buffer[:whole]
                self._buffer = self._buffer[whole:]
            await self._read_more()
        if at:
            yield self._buffer[:at]
        self._buffer = self._buffer[at + len(mark) :]

    async def _read_to(self, mark: bytes, most: int = FIELD_BYTES) -> bytes:
        """Return the bytes before the mark, and go on after it."""
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > most:
                raise _invalid(f"a field, or the head of a part, has over {most} bytes")
            await self._read_more()
        text, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
        if len(text) > most:
            raise _invalid(f"a field, or the head of a part, has over {most} bytes")
        return text

    async def _read_more(self) -> None:
        piece = await anext(self._pieces, None)
        while piece == b"":
            piece = await anext(self._pieces, None)
        if piece is None:
            raise _invalid("it ends too early")
        self._buffer += piece


def _invalid(why: str) -> RequestInvalid:
    return RequestInvalid(
        f"the form is not valid: {why}",
        hint="use a client for OpenAI's API, or: curl -F file=@FILE -F purpose=batch",
    )
