"""Bounds on the fields of an agent's messages, by type and field."""

from typing import Final

from corral.domain.bounds import (
    HOST,
    HOST_LETTERS,
    MOST_ITEMS,
    MOST_RANKS,
    MOST_SAVES,
    MOST_SCALARS,
    MOST_SIGNALS,
    NO_NUL,
    PATH_LETTERS,
    PROBE_LETTERS,
    SCALAR_LETTERS,
    SENTENCE,
    SENTENCE_LETTERS,
    TAIL_LETTERS,
)
from corral.domain.hang import FRAME_LETTERS, MOST_RANK_LOOKS

# Longest texts and lists by type and field; NAME_LETTERS and MOST_ITEMS for all others.
LETTERS: Final = {
    "Save.path": PATH_LETTERS,
    "Save.quarantined": SENTENCE_LETTERS,
    "Seen.trouble": SENTENCE_LETTERS,
    "Seen.tails": TAIL_LETTERS,
    "Seen.probe_text": PROBE_LETTERS,
    "Seen.address": HOST_LETTERS,
    "Exit.error": SENTENCE_LETTERS,
    "NodeHang.cannot_read": SENTENCE_LETTERS,
    "RankLook.frame": FRAME_LETTERS,
    "Scalar.name": SCALAR_LETTERS,
    "Signal.text": SENTENCE_LETTERS,
    "Signal.device": PATH_LETTERS,
    "Inventory.shared": PATH_LETTERS,
    "Inventory.closed": SENTENCE_LETTERS,
    "DiskSample.path": PATH_LETTERS,
    "ContentItem.name": PATH_LETTERS,
    "ContentItem.sources": PATH_LETTERS,
    "ContentFetch.source": PATH_LETTERS,
    "ContentFetch.trouble": SENTENCE_LETTERS,
    "ContentResult.source": PATH_LETTERS,
    "ContentResult.trouble": SENTENCE_LETTERS,
    "NodeSample.silent": PATH_LETTERS,
}
ITEMS: Final = {
    "Heartbeat.seen": 2 * MOST_ITEMS,
    "Heartbeat.signals": MOST_SIGNALS,
    "Seen.exits": MOST_RANKS,
    "Seen.saves": MOST_SAVES,
    "Progress.ranks": MOST_RANKS,
    "Progress.scalars": MOST_SCALARS,
    "Save.metrics": MOST_SCALARS,
    "NodeHang.rank_looks": MOST_RANK_LOOKS,  # in each of the two looks
}
PATTERNS: Final = {
    "Save.quarantined": SENTENCE,
    "Seen.trouble": SENTENCE,
    "Seen.trouble_of": SENTENCE,
    "Seen.tails": NO_NUL,
    "Seen.address": HOST,
    "Exit.error": SENTENCE,
    "NodeHang.cannot_read": SENTENCE,
    "Signal.text": SENTENCE,
    "Inventory.closed": SENTENCE,
    "ContentFetch.trouble": SENTENCE,
    "ContentResult.trouble": SENTENCE,
}
MOMENTS: Final = frozenset({"at", "started_at", "used_at", "verified_at"})
NON_NEGATIVE: Final = frozenset(
    {
        "attempt",
        "step",
        "rank",
        "size_bytes",
        "done_bytes",
        "total_bytes",
        "used_bytes",
        "most_bytes",
        "port",
        "offset",
        "number",
        "dropped",
        "waits_for_input",
    }
)
