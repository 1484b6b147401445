"""ASGI routes: each parses the request, authorises the caller, makes one call to the
head and returns the answer."""

from corral.api.agent_channel import Channels
from corral.api.app import create_app
from corral.api.auth import token_digest
from corral.api.batch_work import keep_batches
from corral.api.leader_proxy import Forwarder
from corral.api.settings import ApiSettings
from corral.api.standby_head import Front, Standby

__all__ = [
    "ApiSettings",
    "Channels",
    "Forwarder",
    "Front",
    "Standby",
    "create_app",
    "keep_batches",
    "token_digest",
]
