"""A client of the head over plain HTTP. It uses only the standard library, so that a
shim starts fast."""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from corral.client.api_calls import Stream
from corral.client.head_target import HeadTarget, Where, error_of, no_answer
from corral.client.request_rules import STREAM_NAP, STREAM_PATIENCE, Following
from corral.domain.errors import WrongHead
from corral.domain.job_states import FINAL
from corral.wire.proven_http import connection_to

TIMEOUT_SECONDS: Final = 60.0
TRIES: Final = 5
PAUSE_SECONDS: Final = 0.2
PIECE: Final = 65_536  # bytes of a stream, at most, that are read at once
MOST: Final = 10_000  # rows of one answer
Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class HeadClient:
    """Client of the head that CORRAL_URL or the cluster's directory names."""

    where: Where = field(default_factory=Where)

    def jobs(self, *, everything: bool) -> list[Row]:
        """Return the jobs, newest first. With `everything`, ended jobs are included."""
        answer = self.ask("GET", "/v1/jobs", {"all": int(everything), "limit": MOST})
        return list(answer["jobs"])

    def named(self, id: str) -> list[Row]:
        """Return the job with this id or, if the id is that of an array, the jobs of
        the array.

        Raises: NotFound if there is neither.
        """
        job_rows = self.ask("GET", "/v1/jobs", {"all": 1, "array": id})["jobs"]
        return list(job_rows) or [self.job(id)]

    def job(self, id: str) -> Row:
        """Return all details of one job."""
        return dict(self.ask("GET", f"/v1/jobs/{quote(id, safe='')}"))

    def change(self, id: str, to: str) -> Row:
        """Change a job. `to` is cancel, suspend, resume or requeue."""
        return dict(self.ask("POST", f"/v1/jobs/{quote(id, safe='')}/{to}"))

    def cancel(self, ids: Sequence[str]) -> list[Row]:
        """Cancel the jobs by one request, and return the refusals."""
        body = {"jobs": list(ids), "to": "cancel"}
        return list(self.ask("POST", "/v1/jobs/changes", body=body)["refused"])

    def signal(self, id: str, number: int, to: str) -> None:
        """Send a signal to processes of a job (`to`: ranks, batch or all).

        Raises: Conflict if the job does not run.
        """
        body = {"signal": str(number), "to": to}
        self.ask("POST", f"/v1/jobs/{quote(id, safe='')}/signal", body=body)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> Any:
        """Send one request to the head and return the answer. If the head is not ready,
        repeat the request a few times where that is safe.

        Raises: a Refusal, or Unreachable.
        """
        for tries_left in reversed(range(TRIES)):
            target = self.where.target()
            try:
                with closing(_connection(target, self.where)) as connection:
                    answer = _send_request(
                        connection, target, method, path, query, body
                    )
                    content = answer.read()
            except (OSError, http.client.HTTPException, WrongHead) as trouble:
                refused = isinstance(trouble, ConnectionRefusedError | WrongHead)
                self.where.pass_over()
                if not tries_left or (method != "GET" and not refused):
                    raise no_answer(target, trouble) from None
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status == 503 and tries_left:
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status >= 400:
                raise error_of(answer.status, content)
            return json.loads(content) if content else None
        raise AssertionError("the last try answers or raises")

    def follow(self, path: str, query: Mapping[str, str | int]) -> Iterator[Any]:
        """Yield the messages of a stream to its end. After a lost connection the stream
        continues at the last message, when the head is back or another head has taken
        over.

        Raises: a Refusal, or Unreachable if no head has answered for STREAM_PATIENCE
        seconds.
        """
        stream: Stream[Any] = Stream(
            path=path,
            query=dict(query),
            read=lambda said: said,
            is_last=lambda said: said.get("end") is not None,
        )
        following, given_up = Following(stream), time.monotonic() + STREAM_PATIENCE
        while not following.over:
            target = self.where.target()
            try:
                with closing(_connection(target, self.where)) as connection:
                    answer = _send_request(
                        connection, target, "GET", path, following.query(), None
                    )
                    if answer.status >= 400 and answer.status != 503:
                        raise error_of(answer.status, answer.read())
                    while answer.status < 400 and (piece := answer.read1(PIECE)):
                        given_up = time.monotonic() + STREAM_PATIENCE
                        yield from following.feed(piece)
            except (OSError, http.client.HTTPException, WrongHead) as trouble:
                self.where.pass_over()
                if time.monotonic() > given_up:
                    raise no_answer(target, trouble) from None
            if not following.over:
                time.sleep(STREAM_NAP)

    def until_over(self, id: str) -> Row:
        """Wait until the job has ended, and return it."""
        while True:
            for _ in self.follow(
                f"/v1/jobs/{quote(id, safe='')}/events", {"follow": 1}
            ):
                pass
            job_row = self.job(id)
            if job_row["state"] in FINAL:
                return job_row
            time.sleep(PAUSE_SECONDS)


def _connection(target: HeadTarget, where: Where) -> http.client.HTTPConnection:
    trusted = where.trust(target) if target.is_tls else None
    return connection_to(
        target.url, target.token, timeout=TIMEOUT_SECONDS, trusted=trusted
    )


def _send_request(
    connection: http.client.HTTPConnection,
    target: HeadTarget,
    method: str,
    path: str,
    query: Mapping[str, str | int] | None,
    body: Any,
) -> http.client.HTTPResponse:
    headers = {"Authorization": f"Bearer {target.token}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    address = f"{path}?{urlencode(query)}" if query else path
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, address, body=data, headers=headers)
    return connection.getresponse()


def whoami() -> str:
    """Return the name of the user whose jobs --me selects."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.geteuid()))
