"""Search for the model in a form that comes in parts."""

from corral.gateway.framing.request_form import (
    FIELD_BYTES,
    MOST_PARTS,
    PART_HEAD_BYTES,
    FormPart,
    boundary_of,
    form_not_valid,
    name_of_part,
)
from corral.gateway.openai_errors import GatewayCode, refused

MODEL: bytes = b"model"


class FormScanner:
    """Scanner of one form. Each byte is looked at once.

    Attributes:
        body: What has come so far.
        model: Where the name of the model is in it; None: not found yet.
    """

    __slots__ = ("_at", "_is_over", "_mark", "_parts", "_search", "body", "model")

    def __init__(self, content_type: bytes) -> None:
        self._mark = b"--" + boundary_of(content_type)
        self._at = 0
        self._search = 0
        self._parts = 0
        self._is_over = False
        self.body = bytearray()
        self.model: FormPart | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises: HeadRefused."""
        self.body += data
        if not self._at:
            if len(self.body) < len(self._mark) + 2:
                return
            if not self.body.startswith(self._mark + b"\r\n"):
                raise form_not_valid()
            self._at = len(self._mark)
        while self.model is None and not self._is_over and self._read_part():
            self._parts += 1
            if self._parts > MOST_PARTS:
                raise refused(
                    GatewayCode.BAD_REQUEST, f"a form has at most {MOST_PARTS} parts"
                )

    def _read_part(self) -> bool:
        """Read a part if it is there as a whole, and return whether it was."""
        body = self.body
        at = self._at
        head_end = body.find(b"\r\n\r\n", at, at + PART_HEAD_BYTES)
        if head_end < 0:
            if len(body) - at >= PART_HEAD_BYTES:
                raise form_not_valid()
            return False
        mark = b"\r\n" + self._mark
        # an empty value: its end is the line end of the head
        begin = max(head_end + 2, self._search)
        end = body.find(mark, begin)
        after = end + len(mark)
        if end < 0 or len(body) < after + 2:
            self._search = max(begin, len(body) - len(mark) - 2)
            return False
        if name_of_part(body, at, head_end) == MODEL:
            self.model = FormPart(MODEL, min(head_end + 4, end), end)
            if end - self.model.begin > FIELD_BYTES:
                raise refused(
                    GatewayCode.BAD_REQUEST, "model is too long", param="model"
                )
        self._at = after
        self._search = 0
        self._is_over = body.startswith(b"--", after)
        if not self._is_over and not body.startswith(b"\r\n", after):
            raise form_not_valid()
        return True

    @property
    def model_name(self) -> str:
        """Name of the model that was found. Raises: HeadRefused."""
        assert self.model is not None
        try:
            return self.body[self.model.begin : self.model.end].decode()
        except UnicodeDecodeError:
            raise refused(
                GatewayCode.BAD_REQUEST, "model is not valid UTF-8", param="model"
            ) from None

    def with_model(self, name: str) -> bytes:
        """Return what has come, with another name of the model."""
        part = self.model
        assert part is not None
        return bytes(self.body[: part.begin]) + name.encode() + self.body[part.end :]
