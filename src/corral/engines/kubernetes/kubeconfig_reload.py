"""A transport that reads the kubeconfig again when the API server no longer accepts its
credentials."""

from collections.abc import Callable
from typing import Final

import httpx2
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

# What a kubeconfig, or the program that it names, may do wrong: it is absent, does not
# read, or fails, and next time it may not.
CONFIG_FAULTS: Final = (ConfigError, OSError, ValueError, KeyError, TypeError)
UNAUTHORIZED: Final = 401


class RenewingTransport(httpx2.AsyncBaseTransport):
    """Transport that uses the newest kubeconfig for each request: its token, its
    certificates, its certificate authority.

    Args:
        read: returns the current kubeconfig.
    """

    def __init__(self, config: SingleConfig, read: Callable[[], SingleConfig]) -> None:
        self._config = config
        self._read = read
        self._inner = _transport_of(config)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, and send it once more if its credentials are rejected and
        the kubeconfig has changed since it was read."""
        try:
            response = await self._send(request)
        except httpx2.ConnectError:  # as for a certificate that has expired
            if not await self._is_renewed():
                raise
            return await self._send(request)
        if response.status_code != UNAUTHORIZED or not await self._is_renewed():
            return response
        await response.aclose()
        return await self._send(request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        if token := _token_of(self._config):
            request.headers["Authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)

    async def _is_renewed(self) -> bool:
        """Read the kubeconfig. Returns: whether it differs from the one that was read
        before."""
        try:
            new_config = self._read()
            if (new_config.user, new_config.cluster) == (
                self._config.user,
                self._config.cluster,
            ):
                return False
            inner = _transport_of(new_config)
        except CONFIG_FAULTS:
            return False  # what was read before is still the best that is known
        old_transport, self._inner, self._config = self._inner, inner, new_config
        await old_transport.aclose()
        return True


def _transport_of(config: SingleConfig) -> httpx2.AsyncHTTPTransport:
    if config.user is None:
        return httpx2.AsyncHTTPTransport()
    context = verify_cluster(config.cluster, config.user, config.abs_file)
    return httpx2.AsyncHTTPTransport(verify=context)


def _token_of(config: SingleConfig) -> str:
    """Return the token that the kubeconfig itself contains.

    Token files and programs that make tokens are not covered: the client itself reads
    those files and runs those programs again.
    """
    user = config.user
    return "" if user is None or user.token_file or user.exec else user.token or ""
