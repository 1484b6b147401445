"""Paths that the gateway serves, apart from those of HTTP services."""

from typing import Final

from corral.gateway.counting.counters import COUNTERS_PATH

# whose model decides the service; the body is JSON, or a form
RELAYED: Final = frozenset(
    {
        b"/v1/chat/completions",
        b"/v1/completions",
        b"/v1/responses",
        b"/v1/embeddings",
        b"/v1/rerank",
        b"/v1/score",
        b"/v1/messages",
        b"/v1/messages/count_tokens",
        b"/v1/audio/transcriptions",
        b"/v1/audio/translations",
        b"/v1/audio/speech",
        b"/v1/images/generations",
        b"/tokenize",
        b"/detokenize",
    }
)
FORMS: Final = frozenset({b"/v1/audio/transcriptions", b"/v1/audio/translations"})
RESPONSES_PATH: Final = b"/v1/responses"
MODELS_PATH: Final = b"/v1/models"
ONE_MODEL: Final = b"/v1/models/"  # and the model's name
LOCAL: Final = frozenset({MODELS_PATH, b"/healthz", b"/metrics", COUNTERS_PATH})


def is_local(path: bytes) -> bool:
    """Return whether the gateway itself answers requests to this path."""
    return path in LOCAL or path.startswith(ONE_MODEL)
