"""Paths of the routes that agents use. They are in a separate module so that agents
need not load the request models."""

from typing import Final

RENEW: Final = "/v1/agents/token"
