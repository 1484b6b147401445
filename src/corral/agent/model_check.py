"""Check of an engine before its replica is ready: it lists its model, and answers one
completion of one token."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from corral.agent.engine_http import request_engine
from corral.agent.probe_result import (
    ProbeKind,
    ProbeResult,
    ProbeTarget,
    failed_probe,
)
from corral.domain.bounds import cut
from corral.domain.job import ModelCheck

LIST_SECONDS: Final = 10.0
# for the first completion, before which some engines load or compile
COMPLETION_SECONDS: Final = 120.0
MODELS_PATH: Final = "/v1/models"
CHAT_PATH: Final = "/v1/chat/completions"
TEXT_PATH: Final = "/v1/completions"
SHOWN_MODELS: Final = 3
ANSWER_LETTERS: Final = 200
_READY: Final = ProbeResult(ProbeKind.READY)
# statuses of an engine that has no such completions, as one of embeddings
_WITHOUT_COMPLETIONS: Final = frozenset({400, 404, 405, 415, 422, 501})


async def check_model(
    target: ProbeTarget, check: ModelCheck, *, with_completion: bool
) -> ProbeResult:
    """Return whether the engine serves its model. All errors of the connection are in
    the result.

    Args:
        with_completion: Whether to request a completion, too.
    """
    name = check.names[0]
    if check.is_listed:
        answer = await _answer_of(target, "GET", MODELS_PATH, None)
        if isinstance(answer, ProbeResult):
            return answer
        models = _models_of(*answer)
        if models is None:
            return _failed_answer(target, f"GET {MODELS_PATH}", *answer)
        served = [model for model in check.names if model in models]
        if not served:
            return failed_probe(
                target,
                ProbeKind.NOT_READY,
                f"GET {MODELS_PATH}: the engine does not serve "
                f"{' or '.join(check.names)}, but {_models_text(models)}",
            )
        name = served[0]
    return await _complete(target, check, name) if with_completion else _READY


async def _complete(target: ProbeTarget, check: ModelCheck, name: str) -> ProbeResult:
    """Request one token: of a chat, and of a text if the engine has no chat. An engine
    that lists its model, and has neither, serves something else, as embeddings."""
    message = {"role": "user", "content": "1"}
    bodies: dict[str, dict[str, object]] = {
        CHAT_PATH: {"messages": [message]},
        TEXT_PATH: {"prompt": "1"},
    }
    refusal = _READY
    for path, body in bodies.items():
        request = {"model": name, **body, "max_tokens": 1}
        answer = await _answer_of(target, "POST", path, request)
        if isinstance(answer, ProbeResult):
            return answer
        status, text = answer
        if status == 200 and _has_choice(text):
            return _READY
        failed = _failed_answer(target, f"POST {path}", status, text)
        if status not in _WITHOUT_COMPLETIONS:
            return failed
        refusal = failed if refusal is _READY else refusal
    return _READY if check.is_listed else refusal


async def _answer_of(
    target: ProbeTarget, method: str, path: str, body: object | None
) -> tuple[int, bytes] | ProbeResult:
    """Return the status and the body of an answer, or the failed probe."""
    seconds = LIST_SECONDS if body is None else COMPLETION_SECONDS
    text = "" if body is None else json.dumps(body)
    try:
        async with asyncio.timeout(seconds):
            return await request_engine(
                target.host, target.port, target.key, method, path, text
            )
    except TimeoutError:
        text = f"no answer to {method} {path} on port {target.port}"
        return failed_probe(target, ProbeKind.NOT_ANSWERED, text)
    except (
        OSError,
        ValueError,
        asyncio.IncompleteReadError,
        asyncio.LimitOverrunError,
    ) as error:
        reason = str(error) or type(error).__name__
        text = f"{method} {path}: the answer is not complete ({reason})"
        return failed_probe(target, ProbeKind.NOT_READY, text)


def _models_of(status: int, body: bytes) -> Sequence[str] | None:
    """Return the names of the models that an engine lists; None if this is no list."""
    rows = _json_of(body).get("data") if status == 200 else None
    if not isinstance(rows, list):
        return None
    return [
        row["id"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    ]


def _models_text(models: Sequence[str]) -> str:
    if not models:
        return "no model"
    more = len(models) - SHOWN_MODELS
    names = ", ".join(models[:SHOWN_MODELS])
    return f"{names} and {more} more" if more > 0 else names


def _has_choice(body: bytes) -> bool:
    """Return whether this is a completion; an error may come with the status 200."""
    answer = _json_of(body)
    return not answer.get("error") and bool(answer.get("choices"))


def _json_of(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _failed_answer(
    target: ProbeTarget, request: str, status: int, body: bytes
) -> ProbeResult:
    text = cut(body.decode(errors="replace").strip(), ANSWER_LETTERS)
    line = f"{request}: {status}{': ' if text else ''}{text}"
    return failed_probe(target, ProbeKind.NOT_READY, line)
