"""Calls to Slurm through slurmrestd: the same requests over HTTP with a JWT, or over a
Unix socket without one.

Source: slurmrestd(8) and the OpenAPI of Slurm 22.05, plugin v0.0.38.
"""

import getpass
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx2

from corral.domain.errors import Unsupported
from corral.domain.time_point import MOMENT_FORM
from corral.engines.slurm.commands import environment
from corral.engines.slurm.interface import NEVER, SlurmTrouble
from corral.engines.slurm.jobs import SlurmJob
from corral.engines.slurm.nodes import SlurmNode
from corral.engines.slurm.slurmrestd_json import body_of, job_rows, node_of_row

VERSION: Final = "v0.0.38"
_UNIX: Final = "unix:"
_NO_WORD: Final = ("Unspecified error", "Zero Bytes were transmitted")
PING: Final = "run: scontrol ping"
# ESLURM_INVALID_JOB_ID, ESLURM_ALREADY_DONE: over is what was wanted
_GONE: Final = (2017, 2021)


@dataclass(slots=True, kw_only=True)
class Rest:
    """Implements `Calls` with slurmrestd. `address`: http(s)://HOST:PORT or unix:PATH.
    The token file is read at each call, so a new token does not need a restart of the
    head."""

    address: str
    token_file: Path | None
    seconds: float
    env: Mapping[str, str] = field(default_factory=environment)
    _client: httpx2.AsyncClient | None = None
    _is_known: bool = False  # that it speaks VERSION

    async def nodes(self) -> tuple[SlurmNode, ...]:
        rows = await self._rows("nodes")
        return tuple(node for row in rows if (node := node_of_row(row)) is not None)

    async def queue(self, name: str = "") -> tuple[SlurmJob, ...]:
        rows = await self._rows("jobs")
        return tuple(
            job for row in rows for job in job_rows(row) if name in ("", job.name)
        )

    async def past(self, names: Sequence[str]) -> tuple[SlurmJob, ...]:
        """Return (): slurmrestd is not used to query Slurm's accounting."""
        return ()

    async def submit(self, script: Path) -> str:
        text = script.read_text()
        reply = await self._call_slurm_api(
            "POST", "job/submit", body_of(text, self.env)
        )
        return str(reply["job_id"])

    async def cancel(self, handles: Sequence[str]) -> None:
        for handle in handles:
            await self._call_slurm_api("DELETE", f"job/{handle}", fine=_GONE)

    async def cancel_named(self, name: str) -> None:
        await self.cancel(
            [job.handle for job in await self.queue(name) if not job.is_over]
        )

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _rows(self, what: str) -> list[dict[str, Any]]:
        rows = (await self._call_slurm_api("GET", what)).get(what)
        if not isinstance(rows, list):
            raise ValueError(f"the answer of slurmrestd contains no list of {what}")
        return rows

    async def _call_slurm_api(
        self, method: str, path: str, body: object = None, *, fine: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Call slurmrestd and return its reply. `fine`: codes of Slurm's errors to
        ignore. Raises: Unsupported, SlurmTrouble."""
        if not self._is_known:
            await self._check_version()
        reply = await self._ask(method, f"/slurm/{VERSION}/{path}", body)
        errors = [
            error_entry
            for error_entry in reply.get("errors") or []
            if _slurm_error_code(error_entry) not in fine
        ]
        if errors:
            self._raise_slurm_errors(errors)
        return reply

    async def _check_version(self) -> None:
        paths = (await self._ask("GET", "/openapi/v3")).get("paths", {})
        if (
            f"/slurm/{VERSION}/jobs" not in paths
            and f"/slurm/{VERSION}/jobs/" not in paths
        ):
            offered = sorted(
                {path.split("/")[2] for path in paths if path.startswith("/slurm/")}
            )
            raise SlurmTrouble(
                f"slurmrestd offers the API versions {', '.join(offered) or '(none)'}, "
                f"but Corral needs {VERSION}",
                hint=f"start it with: slurmrestd -s openapi/{VERSION}; or remove --set "
                "rest",
            )
        self._is_known = True

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            answer = await self._open().request(
                method, path, json=body, headers=self._headers()
            )
            if answer.status_code == 401:
                raise SlurmTrouble(
                    "slurmrestd requires a token"
                    + (
                        ", and it does not accept the given one"
                        if self.token_file
                        else ", but no token file is set"
                    ),
                    hint="run: scontrol token > FILE, and corral up --set "
                    "rest_token_file=FILE",
                )
            document = json.loads(answer.content)
        except (httpx2.HTTPError, OSError) as error:
            raise SlurmTrouble(
                f"slurmrestd at {self.address} did not answer: {error!r}",
                hint="check that slurmrestd runs at this address",
                is_silence=True,
            ) from error
        except ValueError as error:
            raise SlurmTrouble(
                f"slurmrestd at {self.address} answers with HTTP status "
                f"{answer.status_code} and without JSON",
                hint="check that slurmrestd, and no other program, listens at this "
                "address",
            ) from error
        if not isinstance(document, dict):
            raise SlurmTrouble(
                f"slurmrestd answers with a {type(document).__name__} instead of a "
                "JSON object"
            )
        return document

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            is_unix = self.address.startswith(_UNIX)
            uds = self.address.removeprefix(_UNIX) if is_unix else None
            self._client = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=uds) if is_unix else None,
                base_url="http://localhost" if is_unix else self.address,
                timeout=self.seconds,
            )
        return self._client

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        return {
            "X-SLURM-USER-NAME": getpass.getuser(),
            "X-SLURM-USER-TOKEN": self._token(),
        }

    def _raise_slurm_errors(self, errors: Sequence[Mapping[str, Any]]) -> None:
        """Raise an error with Slurm's messages and the next step for the user. Raises:
        Unsupported, SlurmTrouble."""
        complaint = "; ".join(
            " ".join(
                filter(
                    None,
                    (
                        str(error.get("description") or ""),
                        str(error.get("error") or ""),
                    ),
                )
            )
            for error in errors
        )
        if any(never_phrase in complaint for never_phrase in NEVER):
            raise Unsupported(
                f"Slurm does not accept the batch script: {complaint}",
                hint="run: sinfo",
            )
        if any(auth_phrase in complaint for auth_phrase in _NO_WORD):
            raise self._no_word()
        raise SlurmTrouble(f"slurmrestd reports an error: {complaint}", hint=PING)

    def _no_word(self) -> SlurmTrouble:
        """Return the error for the case that slurmrestd cannot reach slurmctld. The
        text names both possible causes, since slurmrestd answers the same if the
        controller is down and if it rejects the token."""
        away = "slurmrestd cannot reach slurmctld"
        if self.token_file is None:
            return SlurmTrouble(away, hint=PING, is_silence=True)
        return SlurmTrouble(
            f"{away}, or slurmctld does not accept the token in "
            f"{self.token_file}{until_of(self._token())}",
            hint=f"{PING}; to get a new token: scontrol token lifespan=86400 > "
            f"{self.token_file}",
        )

    def _token(self) -> str:
        if self.token_file is None:
            return ""
        return self.token_file.read_text().strip().removeprefix("SLURM_JWT=")


def _slurm_error_code(error: Mapping[str, Any]) -> object:
    return error.get("error_code") or error.get("error_number")


def until_of(token: str) -> str:
    """Return words about the time until which the JWT is valid, as the JWT itself says;
    they are appended to a message."""
    try:
        payload = token.split(".")[1]
        expires_at = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))[
            "exp"
        ]
        return (
            " (valid until "
            f"{datetime.fromtimestamp(expires_at, UTC).strftime(MOMENT_FORM)})"
        )
    except (IndexError, KeyError, TypeError, ValueError, OverflowError):
        return " (not a valid token)"
