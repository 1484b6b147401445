"""The head over plain HTTP: the standard library alone, so that a shim starts fast."""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from corral.client.target import Target, Where, error_of, no_answer

TIMEOUT_SECONDS: Final = 60.0
TRIES: Final = 5
PAUSE_SECONDS: Final = 0.2
MOST: Final = 10_000  # rows of one answer
Row = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Head:
    """The head that CORRAL_URL or the cluster's directory names."""

    where: Where = field(default_factory=Where)

    def jobs(self, *, everything: bool) -> list[Row]:
        """Newest first; with `everything` those that are over, too."""
        found = self.ask("GET", "/v1/jobs", {"all": int(everything), "limit": MOST})
        return list(found["jobs"])

    def named(self, id: str) -> list[Row]:
        """The job with this id or, of an array, its jobs. Raises: NotFound."""
        found = self.ask("GET", "/v1/jobs", {"all": 1, "array": id})["jobs"]
        return list(found) or [self.job(id)]

    def job(self, id: str) -> Row:
        """One job whole."""
        return dict(self.ask("GET", f"/v1/jobs/{quote(id, safe='')}"))

    def change(self, id: str, to: str) -> Row:
        """cancel, suspend, resume, requeue."""
        return dict(self.ask("POST", f"/v1/jobs/{quote(id, safe='')}/{to}"))

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> Any:
        """The answer to one request; a head that is not ready is asked again.

        Raises: a Refusal, or Unreachable.
        """
        for left in reversed(range(TRIES)):
            target = self.where.target()
            try:
                with closing(_connection(target, self.where)) as connection:
                    answer = _sent(connection, target, method, path, query, body)
                    content = answer.read()
            except (OSError, http.client.HTTPException) as trouble:
                refused = isinstance(trouble, ConnectionRefusedError)
                self.where.pass_over()
                if not left or (method != "GET" and not refused):
                    raise no_answer(target, trouble) from None
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status == 503 and left:
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status >= 400:
                raise error_of(answer.status, content)
            return json.loads(content) if content else None
        raise AssertionError("the last try answers or raises")

    def follow(self, path: str, query: Mapping[str, str | int]) -> Iterator[Any]:
        """What a stream says, as far as it goes. Raises: a Refusal, or Unreachable."""
        target = self.where.target()
        try:
            with closing(_connection(target, self.where)) as connection:
                answer = _sent(connection, target, "GET", path, query, None)
                if answer.status >= 400:
                    raise error_of(answer.status, answer.read())
                for line in answer:
                    if line.startswith(b"data: "):
                        yield json.loads(line.removeprefix(b"data: "))
        except (OSError, http.client.HTTPException) as trouble:
            raise no_answer(target, trouble) from None

    def until_over(self, id: str) -> Row:
        """The job, once it is over."""
        while True:
            for said in self.follow(f"/v1/jobs/{quote(id, safe='')}/events", {"follow": 1}):
                if "end" in said and said["end"]:
                    break
            found = self.job(id)
            if found["state"] in ("DONE", "FAILED", "CANCELLED"):
                return found
            time.sleep(PAUSE_SECONDS)


def _connection(target: Target, where: Where) -> http.client.HTTPConnection:
    parts = urlsplit(target.url)
    host = parts.hostname or "127.0.0.1"
    if parts.scheme == "https":
        trust = where.trust()
        return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_SECONDS, context=trust)
    return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_SECONDS)


def _sent(
    connection: http.client.HTTPConnection,
    target: Target,
    method: str,
    path: str,
    query: Mapping[str, str | int] | None,
    body: Any,
) -> http.client.HTTPResponse:
    headers = {"Authorization": f"Bearer {target.token}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    asked = f"{path}?{urlencode(query)}" if query else path
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, asked, body=data, headers=headers)
    return connection.getresponse()


def whoami() -> str:
    """Whose jobs are meant by --me."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.geteuid()))
