"""Choice of the source of content by the text of a spec."""

import os
import re
from collections.abc import Mapping
from typing import Final

from corral.agent.content_cache.hf_source import ENDPOINT, TOKEN, HfSource
from corral.agent.content_cache.http_source import HttpSource
from corral.agent.content_cache.manifest import content_key
from corral.agent.content_cache.refusals import ContentRefused
from corral.agent.content_cache.s3_source import (
    S3_VARIABLES,
    S3Source,
    check_obstore,
)
from corral.agent.content_cache.source import ContentRequest, ContentSource
from corral.wire.field_readers import WrongValue
from corral.wire.model_source import ModelSource, SourceKind, model_source_of

VARIABLES: Final = (ENDPOINT, TOKEN, *S3_VARIABLES)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)


def source_env(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that sources read: those of the agent, replaced by those of
    the layers, the last one first."""
    merged: dict[str, str] = {}
    for layer in (os.environ, *layers):
        merged |= {name: layer[name] for name in VARIABLES if name in layer}
    return merged


def parse_source(text: str) -> ModelSource:
    """Return the source that the text of a spec means. Raises: ContentRefused."""
    try:
        return model_source_of(text)
    except WrongValue as wrong:
        raise ContentRefused(wrong.text, hint=wrong.hint) from None


def choose_source(request: ContentRequest) -> ContentSource:
    """Return the source of a request. Raises: ContentRefused."""
    source = parse_source(request.source)
    match source.kind:
        case SourceKind.HF:
            return HfSource(source.location, source.revision, request.env)
        case SourceKind.HTTP:
            return HttpSource(source.location, source.revision)
        case SourceKind.S3:
            check_obstore()
            return S3Source(source.location, request.env)
        case SourceKind.PATH:
            raise ContentRefused(
                f"{request.source} is a path, which nodes do not fetch"
            )


def pinned_key(request: ContentRequest, source: ContentSource) -> str | None:
    """Return the key of the only content to which the source can lead, because it names
    a commit or a hash; None for any other source."""
    text = request.source
    parsed = parse_source(text)
    if parsed.kind is SourceKind.HTTP:
        return source.listing().key  # it asks no server
    is_commit = _COMMIT.fullmatch(parsed.revision) is not None
    if parsed.kind is SourceKind.HF and is_commit:
        return content_key(source.origin, text)
    return None
