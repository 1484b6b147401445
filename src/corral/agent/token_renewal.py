"""Renewal of the node's own token by the agent, well before the token expires."""

import asyncio
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from corral.agent.clocks import wall
from corral.agent.fetch_inputs import HeadAway, HeadRefuses
from corral.agent.settings import TOKEN, SettingsInvalid, load_token
from corral.domain.units import DAY_SECONDS
from corral.domain.users import RENEW_SECONDS
from corral.wire.agent_routes import RENEW

LOOK_SECONDS: Final = 600.0
AGAIN_SECONDS: Final = 30.0
UNSUPPORTED: Final = "unsupported"
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Renewal:
    """Renewal of the token in the node's folder.

    Args:
        post: sends a body to a route of the head with the current token.
        use: is called with each new token, and passes it to every part of the agent
            that authenticates to the head.
        refused: is set when the head refuses the current token.
    """

    node_dir: Path
    token: str
    post: Callable[[str, bytes], bytes]
    use: Callable[[str], None]
    refused: asyncio.Event
    chance: Random = field(default_factory=Random)

    async def keep(self) -> None:
        """Check the token every ten minutes without end, and soon after the head has
        refused it."""
        spread = self.chance.uniform(0.9, 1.1)  # nodes that joined together renew apart
        while True:
            wait_seconds = await self.look(RENEW_SECONDS * spread)
            if wait_seconds > AGAIN_SECONDS:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self.refused.wait()
            else:
                await asyncio.sleep(wait_seconds)

    async def look(self, renew_after_seconds: float) -> float:
        """Renew the token if it is refused, or older than `renew_after_seconds`. Return
        the seconds until the next check."""
        refused = self.refused.is_set()
        self.refused.clear()
        if self._adopt_stored_token():
            return LOOK_SECONDS
        if not refused and self._age_seconds() < renew_after_seconds:
            return LOOK_SECONDS
        try:
            await self._renew_token()
        except HeadRefuses as no:
            if no.its_code == UNSUPPORTED:  # its engine hands out its tokens
                return DAY_SECONDS
            log.warning("the node's token cannot be renewed: %s", no)
        except (HeadAway, OSError, ValueError) as trouble:
            log.info("the node's token cannot be renewed yet: %s", trouble)
        else:
            return LOOK_SECONDS
        return AGAIN_SECONDS

    def _adopt_stored_token(self) -> bool:
        """Use the token in the node's folder if it differs from the current one. Return
        whether it differed."""
        try:
            stored_token = load_token(self.node_dir)
        except SettingsInvalid as missing:
            log.warning("%s", missing)
            return False
        if stored_token == self.token:
            return False
        self._switch_token(stored_token)
        return True

    def _age_seconds(self) -> float:
        try:
            return wall() - (self.node_dir / TOKEN).stat().st_mtime
        except OSError:
            return 0.0

    async def _renew_token(self) -> None:
        """Replace the token by a new one. The head records the new token before the
        agent writes it into the folder. Until then, the earlier token stays valid and
        can be renewed again. Raises: HeadRefuses, HeadAway, OSError."""
        new_token = secrets.token_urlsafe(32)
        body = json.dumps(
            {"sha256": hashlib.sha256(new_token.encode()).hexdigest()}
        ).encode()
        await asyncio.to_thread(self.post, RENEW, body)
        _write_token_file(self.node_dir / TOKEN, new_token)
        self._switch_token(new_token)
        log.info("the node's token was renewed")

    def _switch_token(self, token: str) -> None:
        self.token = token
        self.use(token)


def _write_token_file(path: Path, token: str) -> None:
    """Replace the file atomically and durably; only its owner can read it."""
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
    temporary_path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
    ) as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary_path.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
