"""ASGI middleware: the client's address and scheme, as trusted proxies report them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from corral.ingress.addresses import TrustedProxies


class Forwarded:
    """Sets `client` and `scheme` of a request that a trusted proxy forwards."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client is not None:
            peer, headers = str(client[0]), scope["headers"]
            address = self._proxies.client_of(peer, headers)
            if address != peer:
                scope["client"] = (address, 0)
            scope["scheme"] = self._proxies.scheme_of(peer, headers, scope["scheme"])
        await self._app(scope, receive, send)
