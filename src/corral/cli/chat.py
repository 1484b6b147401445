"""`corral service chat`: questions to a service, and its answers as they are made."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.head_options import Common
from corral.cli.option_types import TextPart
from corral.cli.printing import clean, note
from corral.cli.service_text import model_of
from corral.domain.errors import Conflict
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client.chat_stream import ChatPiece, Message

PROMPT = "> "


def chat(
    service: str,
    /,
    *,
    prompt: Annotated[TextPart | None, Parameter(name=["--prompt", "-p"])] = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Chat with a service through the gateway. Ctrl-C ends an answer, and Ctrl-D the
    chat.

    Args:
        service: Name of the service.
        prompt: Ask only this, print the answer, and exit (default: ask for questions).
    """
    from corral.client.chat_stream import stream_chat

    with common.client() as client:
        target, token = client.service(service), client.access_token()
        trusted = client.trust_of(target.url)
    if not target.url or target.is_stopped:
        text = (
            "is stopped" if target.is_stopped else "cannot be reached: no gateway runs"
        )
        raise Conflict(
            f"the service {target.name} {text}", hint=f"run: corral why {target.name}"
        )

    decode = [role.replicas for role in target.roles if role.role == "decode"]
    if "0" in (decode or [target.replicas]):
        raise Conflict(
            f"the service {target.name} may have no replicas",
            hint=f"run: corral service scale {target.name} 1"
            + (" --role decode" if target.roles else ""),
        )

    def ask(messages: "Sequence[Message]") -> "Iterator[ChatPiece]":
        return stream_chat(target.url, token, model_of(target), messages, trusted)

    if prompt is not None:
        _print_answer(ask([{"role": "user", "content": prompt}]))
        return
    if sys.stdin.isatty():
        note(f"chat with {target.name}; Ctrl-C ends an answer, Ctrl-D the chat")
    hold_chat(ask, _next_question)


def hold_chat(
    ask: "Callable[[Sequence[Message]], Iterator[ChatPiece]]",
    next_question: Callable[[], str | None],
) -> None:
    """Ask each question with the earlier ones and their answers, until there is no
    further question."""
    messages: list[Message] = []
    while (question := next_question()) is not None:
        if not question.strip():
            continue
        messages.append({"role": "user", "content": question})
        answer = _print_answer(ask(messages))
        messages.append({"role": "assistant", "content": answer})


def _next_question() -> str | None:
    """Read a question; None at the end of the input."""
    try:
        return input(PROMPT if sys.stdin.isatty() else "")
    except EOFError:
        if sys.stdin.isatty():
            print()
        return None


def _print_answer(pieces: "Iterator[ChatPiece]") -> str:
    """Print an answer as it arrives, and its speed to stderr. Return the text, which
    Ctrl-C may have cut."""
    clock = SystemClock()
    texts: list[str] = []
    tokens, began_at, is_cut = None, None, False
    try:
        for piece in pieces:
            if piece.text:
                began_at = began_at or clock.monotonic()
                texts.append(piece.text)
                sys.stdout.write(clean(piece.text))
                sys.stdout.flush()
            tokens = piece.tokens or tokens
    except KeyboardInterrupt:
        is_cut = True
    finally:
        if texts:
            print(flush=True)
    if is_cut:
        note("the answer was ended")
    elif began_at is not None:
        is_streamed = len(texts) > 1
        seconds = clock.monotonic() - began_at if is_streamed else None
        note(speed_text(tokens or len(texts), seconds, is_exact=tokens is not None))
    return "".join(texts)


def speed_text(tokens: int, seconds: float | None, *, is_exact: bool) -> str:
    """Return the speed of an answer, for example: 120 tokens in 2.0 s, 60 tokens/s.
    Without the count of the engine, the pieces are counted. The first token is not
    part of the time.

    Args:
        seconds: Time of the answer; None: it came as one piece, which has no speed.
    """
    about = "" if is_exact else "about "
    if seconds is None:
        return f"{about}{counted(tokens, 'token')}"
    speed = f", {(tokens - 1) / seconds:.3g} tokens/s" if seconds and tokens > 1 else ""
    return f"{about}{counted(tokens, 'token')} in {seconds:.1f} s{speed}"
