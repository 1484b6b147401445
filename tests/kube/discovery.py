"""What there is to be asked for: what kubectl reads before it asks for anything.

https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from typing import Final

from tests.kube.kinds import Json, Kind, Kinds

VERSION: Final = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0-of-the-tests",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-22T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def answer(kinds: Kinds, path: list[str]) -> Json | None:
    """None when the path is not one of discovery."""
    match path:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [],
            }
        case ["apis"]:
            groups = [_group(*one) for one in kinds.groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in kinds.groups():
            return _group(group, kinds.groups()[group])
        case ["api", "v1"]:
            return _resources(kinds.of("", "v1"), "v1")
        case ["apis", group, version] if kinds.of(group, version):
            return _resources(kinds.of(group, version), f"{group}/{version}")
        case ["openapi", "v3"]:
            urls = {at: f"/openapi/v3/{at}?hash=0" for at in _places(kinds)}
            return {
                "paths": {at: {"serverRelativeURL": url} for at, url in urls.items()}
            }
        case ["openapi", "v3", *rest] if "/".join(rest) in _places(kinds):
            return _openapi(_places(kinds)["/".join(rest)])
    return None


def _group(group: str, versions: list[str]) -> Json:
    listed = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in versions
    ]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def _resources(kinds: list[Kind], group_version: str) -> Json:
    rows = []
    for one in kinds:
        row = {
            "name": one.plural,
            "singularName": one.kind.lower(),
            "namespaced": one.namespaced,
            "kind": one.kind,
            "verbs": list(one.verbs),
            "shortNames": list(one.short),
        }
        rows.append(row)
        subs = (["status"] if one.status else []) + (
            ["log"] if one.kind == "Pod" else []
        )
        for sub in subs:
            verbs = ["get"] if sub == "log" else ["get", "patch", "update"]
            rows.append(
                {**row, "name": f"{one.plural}/{sub}", "verbs": verbs, "shortNames": []}
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": rows,
    }


def _places(kinds: Kinds) -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = {}
    for one in kinds.all:
        found.setdefault(
            f"apis/{one.api_version}" if one.group else "api/v1", []
        ).append(one)
    return found


def _openapi(kinds: list[Kind]) -> Json:
    """Enough for kubectl to see that the server checks fields itself, and merges as
    built in."""
    paths: Json = {}
    for one in kinds:
        base = f"/apis/{one.api_version}" if one.group else "/api/v1"
        base += "/namespaces/{namespace}" if one.namespaced else ""
        at = f"{base}/{one.plural}"
        named = {"group": one.group, "version": one.version, "kind": one.kind}
        parameter = {
            "name": "fieldValidation",
            "in": "query",
            "schema": {"type": "string"},
        }
        operation = {
            "parameters": [parameter],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": named,
        }
        paths[at] = {"post": {**operation, "x-kubernetes-action": "post"}}
        paths[f"{at}/{{name}}"] = {
            "patch": {**operation, "x-kubernetes-action": "patch"}
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": paths,
        "components": {"schemas": {}},
    }
