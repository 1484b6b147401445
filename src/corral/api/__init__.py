"""ASGI routes: parse, authorise, one call, answer."""

from corral.api.agents import Channels
from corral.api.app import create_app
from corral.api.auth import token_digest
from corral.api.settings import ApiSettings

__all__ = ["ApiSettings", "Channels", "create_app", "token_digest"]
