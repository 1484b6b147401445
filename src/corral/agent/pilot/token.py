"""The token of a pilot whose ranks can read its folder; it is replaced before any of
them begins.

In a pod nothing hides files from ranks: the pod has no right to mount, and the agent
often has the same account as the ranks. So the token that came with the pod is used
once, to get another token that exists only in the agent's memory.
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
    """Prevent other processes of this account from reading this process's memory and
    environment.

    Only CAP_SYS_PTRACE still allows it, which pods lack unless they are privileged. A
    program executed later is readable again; a fork stays protected.

    Raises: OSError when the kernel refuses.
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
    """Replace the current token by a new one from the head; wait while the head is
    away.

    The current token is invalid as soon as the head has recorded the new one. So if an
    answer was lost and the head then refuses the current token, the head has recorded
    the new one.

    Args:
        post: sends a body to a route of the head with the current token.
        use: passes a token to everything that sends it to the head.
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
                log.warning(
                    "this pilot's token is not replaced, ranks can read it: %s", no
                )
                return
            log.info("the pod's first token is no longer valid: %s", no)
        except (HeadAway, OSError, ValueError) as trouble:
            if not failures:
                log.warning("the pilot's token cannot be replaced yet: %s", trouble)
            failures += 1
            await asyncio.sleep(delay_seconds(failures, chance))
            continue
        use(new_token)
        return
