"""The client's part of a log-in through the identity provider from a terminal. Its
requests carry no token yet."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from corral.client.head_target import Where, error_of, unreachable
from corral.client.log_ins import LogIn
from corral.client.request_rules import CONNECT_TIMEOUT, READ_TIMEOUT, body_of
from corral.domain.errors import CorralError, Trouble, Unreachable
from corral.domain.terminal_log_in import expired
from corral.wire.head_proof import needs_proof
from corral.wire.users import TERMINAL_TOKEN, TERMINALS, TerminalBegun, TerminalToken

TERMINAL_PAGE: Final = "/v1/oidc/terminal"
LONGEST_WAIT_SECONDS: Final = 5.0


def begin_log_in(
    where: Where, *, sleep: Callable[[float], None], monotonic: Callable[[], float]
) -> tuple["TerminalLogInClient", TerminalBegun]:
    """Begin a log-in at the first head address that answers. Return the client and the
    answer of the head.

    Raises: as `TerminalLogInClient.begin`; Unreachable names every address that did not
    answer.
    """
    failures: list[Unreachable] = []
    for url in where.addresses():
        client = TerminalLogInClient(where, url, sleep=sleep, monotonic=monotonic)
        try:
            return client, client.begin()
        except Unreachable as error:
            client.close()
            failures.append(error)
        except BaseException:
            client.close()
            raise
    messages = "; ".join(error.message for error in failures)
    raise Unreachable(messages, hint=failures[-1].hint) from failures[-1]


class TerminalLogInClient:
    """One log-in at one head, from its beginning to the token.

    `sleep` and `monotonic` are the functions of the module time.
    """

    def __init__(
        self,
        where: Where,
        url: str,
        *,
        sleep: Callable[[float], None],
        monotonic: Callable[[], float],
    ) -> None:
        import httpx2

        needs_proof(url)  # refuses a machine elsewhere without TLS
        self.url = url
        self._sleep = sleep
        self._monotonic = monotonic
        timeout = httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
        trusted = where.trust_of(url)
        self._http = httpx2.Client(timeout=timeout, trust_env=False, verify=trusted)

    def close(self) -> None:
        self._http.close()

    def begin(self) -> TerminalBegun:
        """Begin the log-in.

        Raises: NotFound if the head has no identity provider, Refusal if too many
        log-ins are open, Unreachable.
        """
        return TerminalBegun.model_validate(self._post_json(TERMINALS))

    def page(self, begun: TerminalBegun) -> str:
        """Return the address to open in a browser."""
        return f"{self.url}{TERMINAL_PAGE}?id={quote(begun.id, safe='')}"

    def wait(self, begun: TerminalBegun) -> LogIn:
        """Return the log-in once the user has confirmed it in the browser.

        Raises: Refusal if it is refused in the browser, or not confirmed in time.
        """
        deadline = self._monotonic() + begun.seconds
        nap = max(0.5, min(begun.poll_seconds, LONGEST_WAIT_SECONDS))
        while self._monotonic() < deadline:
            self._sleep(nap)
            try:
                answer = self._post_json(TERMINAL_TOKEN, {"secret": begun.secret})
            except CorralError as error:
                if isinstance(error, Trouble) or error.code == "too_many":
                    continue
                raise
            terminal_token = TerminalToken.model_validate(answer)
            if (
                terminal_token.token
                and terminal_token.id
                and terminal_token.user
                and terminal_token.expires_at
            ):
                return LogIn(
                    url=self.url,
                    token=terminal_token.token,
                    id=terminal_token.id,
                    user=terminal_token.user,
                    expires_at=terminal_token.expires_at,
                )
        raise expired()

    def _post_json(self, path: str, body: dict[str, str] | None = None) -> Any:
        import httpx2

        try:
            answer = self._http.post(self.url + path, json=body)
        except httpx2.TransportError as error:
            raise unreachable(
                self.url, error, hint="check that a head runs at this address"
            ) from None
        if answer.status_code >= 400:
            raise error_of(answer.status_code, answer.content)
        return body_of(answer.content)
