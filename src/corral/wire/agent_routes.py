"""Routes that agents ask for, by name alone: shapes of requests would load what agents
need not."""

from typing import Final

RENEW: Final = "/v1/agents/token"
