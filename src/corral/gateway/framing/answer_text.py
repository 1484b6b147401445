"""Text of answers that pass on a replica's: heads, whole answers, and chunks."""

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.openai_errors import REASONS


def whole_answer(
    head: AnswerHead,
    request_id: bytes,
    body: bytes,
    *,
    closes: bool,
    more_lines: bytes = b"",
) -> bytes:
    """Return an answer of known length.

    Args:
        more_lines: Lines of the head that the gateway adds.
    """
    return (
        b"HTTP/1.1 %d %b\r\n%bx-request-id: %b\r\n%b%bContent-Length: %d\r\n\r\n%b"
        % (
            head.status,
            REASONS.get(head.status, b"-"),
            head.passed,
            request_id,
            more_lines,
            b"Connection: close\r\n" if closes else b"",
            len(body),
            body,
        )
    )


def open_answer(
    head: AnswerHead,
    request_id: bytes,
    *,
    is_chunked: bool,
    closes: bool,
    more_lines: bytes = b"",
) -> bytes:
    """Return the head of an answer whose length is not known.

    Args:
        more_lines: Lines of the head that the gateway adds.
    """
    return b"HTTP/1.1 %d %b\r\n%bx-request-id: %b\r\n%b%b%b\r\n" % (
        head.status,
        REASONS.get(head.status, b"-"),
        head.passed,
        request_id,
        more_lines,
        b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
        b"Connection: close\r\n" if closes else b"",
    )


def chunk(payload: bytes, *, is_last: bool) -> bytes:
    """Return a chunk, with the end of the body after the last one."""
    if not payload:
        return b"0\r\n\r\n" if is_last else b""
    end = b"0\r\n\r\n" if is_last else b""
    return b"%x\r\n%b\r\n%b" % (len(payload), payload, end)
