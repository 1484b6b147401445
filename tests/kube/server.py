"""The API server of the tests: HTTP in front of the verbs, with TLS, tokens and
roles."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.types import Receive, Scope, Send

from tests.kube import discovery
from tests.kube.kinds import Json, Kind
from tests.kube.status import Refused, bad_request
from tests.kube.verbs import Verbs, Where
from tests.kube.watching import Watching

READS: Final = {False: "list", True: "get"}
LOG_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of a role.
    https://kubernetes.io/docs/reference/access-authn-authz/rbac/"""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespaces: tuple[str, ...] = ("*",)

    def allows(self, verb: str, where: Where) -> bool:
        resource = (
            f"{where.kind.plural}/{where.sub}" if where.sub else where.kind.plural
        )
        return (
            bool({"*", where.kind.group} & set(self.groups))
            and bool({"*", resource} & set(self.resources))
            and bool({"*", verb} & set(self.verbs))
            and bool({"*", where.namespace} & set(self.namespaces))
        )


ALL: Final = (Rule(groups=("*",), resources=("*",), verbs=("*",)),)


@dataclass(slots=True, kw_only=True)
class Server:
    """An ASGI application. `users`: token -> (name, rules). `asked`: every request, in
    order.

    `down`: answer 503 to all. `logs`: where the output of a pod is.
    """

    verbs: Verbs
    watching: Watching
    users: dict[str, tuple[str, tuple[Rule, ...]]]
    logs: dict[str, Path]
    asked: list[tuple[str, str]] = field(default_factory=list)
    down: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Refused as refused:
            response = JSONResponse(refused.body, refused.code)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = [part for part in request.url.path.split("/") if part]
        self.asked.append((request.method, request.url.path))
        if self.down:
            raise Refused(
                503, "ServiceUnavailable", "the server is currently unable to handle it"
            )
        if path in (["readyz"], ["livez"], ["healthz"]):
            return PlainTextResponse("ok")
        name, rules = self._user(request)
        if (found := discovery.answer(self.verbs.kinds, path)) is not None:
            return JSONResponse(found)
        if path[-1:] == ["selfsubjectaccessreviews"]:
            return JSONResponse(self._review(rules, await _body(request)), 201)
        where = self._where(path, dict(request.query_params))
        verb = _verb(request.method, where)
        if not any(rule.allows(verb, where) for rule in rules):
            raise _not_allowed(name, verb, where)
        return await self._do(verb, where, request)

    def _user(self, request: Request) -> tuple[str, tuple[Rule, ...]]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.users:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return self.users[token]

    def _review(self, rules: tuple[Rule, ...], review: Json) -> Json:
        """https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access"""
        asked = review["spec"]["resourceAttributes"]
        kind = self.verbs.kinds.find(asked.get("group", ""), "v1", asked["resource"])
        where = (
            Where(kind=kind, namespace=asked.get("namespace", ""))
            if kind is not None
            else None
        )
        allowed = where is not None and any(
            one.allows(asked["verb"], where) for one in rules
        )
        return {**review, "status": {"allowed": allowed}}

    def _where(self, path: list[str], query: dict[str, str]) -> Where:
        """/api/v1/..., /apis/GROUP/VERSION/...; then
        [namespaces/NS/]PLURAL[/NAME[/SUB]]."""
        group, rest = (
            ("", path[1:]) if path[:1] == ["api"] else ("".join(path[1:2]), path[2:])
        )
        version, rest = "".join(rest[:1]), rest[1:]
        namespace = ""
        if (
            rest[:1] == ["namespaces"]
            and len(rest) > 2
            and rest[2] not in ("status", "finalize")
        ):
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "", "")[:3]
        kind = self.verbs.kinds.find(group, version, plural)
        if kind is None or path[0] not in ("api", "apis") or len(rest) > 3:
            raise Refused(
                404, "NotFound", "the server could not find the requested resource"
            )
        return Where(kind=kind, namespace=namespace, name=name, sub=sub, query=query)

    async def _do(self, verb: str, where: Where, request: Request) -> Response:
        if where.sub == "log":
            return StreamingResponse(self._log(where), media_type="text/plain")
        match verb:
            case "list":
                return JSONResponse(self.verbs.page(where))
            case "get":
                return JSONResponse(self.verbs.get(where))
            case "watch":
                return StreamingResponse(
                    self.watching.stream(where), media_type="application/json"
                )
        body = await _body(request)
        match verb:
            case "create":
                return JSONResponse(self.verbs.create(where, body), 201)
            case "update":
                return JSONResponse(self.verbs.replace(where, body))
            case "patch":
                kind = request.headers.get("content-type", "").partition(";")[0]
                return JSONResponse(self.verbs.patch(where, body, kind))
            case "deletecollection":
                found = self.verbs.page(where)
                for one in found["items"]:
                    about = one["metadata"]
                    space = about.get("namespace", "")
                    at = Where(kind=where.kind, namespace=space, name=about["name"])
                    self.verbs.delete(at, body or {})
                return JSONResponse(found)
        return JSONResponse(self.verbs.delete(where, body or {}))

    async def _log(self, where: Where) -> AsyncIterator[bytes]:
        pod = self.verbs.get(where)
        file = self.logs.get(pod["metadata"]["uid"])
        text = file.read_bytes() if file is not None and file.exists() else b""
        if tail := where.query.get("tailLines"):
            text = b"".join(text.splitlines(keepends=True)[-int(tail) :])
        yield text
        if file is None or where.query.get("follow") not in ("true", "True", "1"):
            return
        at = file.stat().st_size
        while True:
            found = self.verbs.storage.find(where.kind, where.namespace, where.name)
            over = found is None or found["status"].get("phase") in (
                "Succeeded",
                "Failed",
            )
            with file.open("rb") as opened:
                opened.seek(at)
                fresh = opened.read()
            at += len(fresh)
            yield fresh
            if over:
                return
            await asyncio.sleep(LOG_SECONDS)


def _verb(method: str, where: Where) -> str:
    if method == "GET" and where.query.get("watch") in ("1", "true", "True"):
        return "watch"
    if method == "DELETE" and not where.name:
        return "deletecollection"
    known = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete",
             "GET": READS[bool(where.name)]}  # fmt: skip
    if method not in known or known[method] not in where.kind.verbs:
        raise Refused(
            405, "MethodNotAllowed", "the server does not allow this method here"
        )
    return known[method]


async def _body(request: Request) -> Any:
    text = await request.body()
    if not text:
        return None
    try:
        return yaml.safe_load(text) if b"yaml" in _type(request) else json.loads(text)
    except (ValueError, yaml.YAMLError) as wrong:
        raise bad_request(f"the body does not read: {wrong}") from wrong


def _type(request: Request) -> bytes:
    return request.headers.get("content-type", "").encode()


def _not_allowed(user: str, verb: str, where: Where) -> Refused:
    kind: Kind = where.kind
    plural = f"{kind.plural}/{where.sub}" if where.sub else kind.plural
    scope = (
        f'in the namespace "{where.namespace}"'
        if where.namespace
        else "at the cluster scope"
    )
    said = f'{plural} is forbidden: User "{user}" cannot {verb} resource "{plural}" in API group '
    details: Json = {"name": where.name, "group": kind.group, "kind": kind.plural}
    return Refused(403, "Forbidden", f'{said}"{kind.group}" {scope}', details)
