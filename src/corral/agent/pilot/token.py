"""Token of a part whose ranks can read its folder: replaced before any of them begins.

In a pod nothing hides files from ranks: it has no right to mount, and its agent often
has the account of its ranks. So the token that came with the pod is used once, for
another one that is in the agent's memory alone.
"""

import asyncio
import ctypes
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable
from random import Random
from typing import Final

from corral.agent.connection import delay_seconds
from corral.agent.fetch_inputs import HeadAway, HeadRefuses
from corral.agent.token_renewal import UNSUPPORTED
from corral.wire.agent_routes import RENEW

PR_SET_DUMPABLE: Final = 4
log = logging.getLogger(__name__)


def close_memory() -> None:
    """Keep other processes of this account from this one's memory and environment.

    Only CAP_SYS_PTRACE opens them, which pods lack unless they are privileged. What is
    executed later is open again; a fork stays closed.
    Raises: OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def exchange(
    post: Callable[[str, bytes], bytes],
    use: Callable[[str], None],
    chance: Random | None = None,
) -> None:
    """Let the head replace the token in use by a fresh one; wait for a head that is
    away.

    The earlier token counts no more from the moment that the head has recorded the
    fresh one. So a head that refuses it after an answer was lost has recorded the fresh
    one.

    Args:
        post: Sends a body to a route of the head with the token in use.
        use: Hands a token to everything that shows it to the head.
    """
    new_token, chance, failures = secrets.token_urlsafe(32), chance or Random(), 0
    body = json.dumps(
        {"sha256": hashlib.sha256(new_token.encode()).hexdigest()}
    ).encode()
    while True:
        try:
            await asyncio.to_thread(post, RENEW, body)
        except HeadRefuses as no:
            if no.its_code == UNSUPPORTED:  # a head of an older version
                log.warning("ranks can read the token of this part: %s", no)
                return
            log.info("the token that came with the pod counts no more: %s", no)
        except (HeadAway, OSError, ValueError) as trouble:
            if not failures:
                log.warning("the part's token is not exchanged yet: %s", trouble)
            failures += 1
            await asyncio.sleep(delay_seconds(failures, chance))
            continue
        use(new_token)
        return
