"""Addresses of heads: first those that the head has reported, then the address in
head.json."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral.agent.settings import head_url

FILE: Final = "heads.json"
ANSWERS: Final = 10  # "not now" answers from one head before the next head is tried
LONGEST_LIST: Final = 16
log = logging.getLogger(__name__)


class HeadAddresses:
    """The addresses of all heads. All connections of the agent use the same current
    address. When the head at that address is away, the next address becomes current;
    open connections to the earlier head are then closed, because they may hang for
    long."""

    def __init__(self, head_file: Path, node_dir: Path | None = None) -> None:
        self.head_file = head_file
        self._kept = None if node_dir is None else node_dir / FILE
        self._named = _read_stored_urls(self._kept)
        self._turn: str | None = None
        self._moved = asyncio.Event()
        self._answers = 0

    def url(self) -> str:
        """Return the address to dial now. Raises: OSError, ValueError if no address is
        known."""
        known_urls = self._known()
        if self._turn not in known_urls:
            self._turn = known_urls[0]
        return self._turn

    def named(self, urls: Sequence[str]) -> None:
        """Store the addresses that the head reports, the leading head first. They are
        also written to disk, because a head that is gone no longer updates its
        head.json."""
        new_urls = [
            url.rstrip("/") for url in urls[:LONGEST_LIST] if url.startswith("http")
        ]
        if new_urls != self._named:
            self._named = new_urls
            if self._kept is not None:
                with contextlib.suppress(OSError):  # this agent knows them all the same
                    partial_file = self._kept.with_suffix(".part")
                    partial_file.write_text(json.dumps(new_urls))
                    partial_file.rename(self._kept)

    def failed(self, url: str, trouble: Exception) -> None:
        """Record that a connection to `url` failed or ended with the error `trouble`.
        The next address is used at once if the head did not answer, or else after
        several refusals in a row."""
        if url != self._turn:
            return
        self._answers += 1
        if not _has_answered(trouble) or self._answers >= ANSWERS:
            known_urls = self._known()
            self._turn = (
                known_urls[(known_urls.index(url) + 1) % len(known_urls)]
                if url in known_urls
                else None
            )
            self._answers = 0
            if self._turn != url:
                self._moved.set()
                self._moved = asyncio.Event()

    def worked(self) -> None:
        """Record that a connection to the current head works."""
        self._answers = 0

    async def elsewhere(self) -> None:
        """Wait until the current address changes to that of another head."""
        await self._moved.wait()
        log.info("the agent connects to another head")

    def _known(self) -> list[str]:
        try:
            local_urls = [head_url(self.head_file)]
        except (OSError, ValueError):
            if not self._named:
                raise
            local_urls = []
        return list(dict.fromkeys([*self._named, *local_urls]))


def _has_answered(trouble: Exception) -> bool:
    """Return whether the error is an answer of the head."""
    closed_by_head = isinstance(trouble, ConnectionClosed) and trouble.rcvd is not None
    return closed_by_head or isinstance(trouble, InvalidStatus)


def _read_stored_urls(kept: Path | None) -> list[str]:
    try:
        stored = json.loads(kept.read_bytes()) if kept is not None else []
    except (OSError, ValueError):
        return []
    return (
        [url for url in stored if isinstance(url, str)]
        if isinstance(stored, list)
        else []
    )
