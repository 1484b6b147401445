"""Paths of the HTTP routes that agents use. They are in a separate module so that
agents do not load the request models."""

from typing import Final

RENEW: Final = "/v1/agents/token"
