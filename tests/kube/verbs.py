"""What each verb does to what is kept.
https://kubernetes.io/docs/reference/using-api/api-concepts/"""

import base64
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from tests.kube import rules
from tests.kube.kinds import Json, Kind, Kinds
from tests.kube.patches import patched
from tests.kube.selectors import fields_match, labels_match
from tests.kube.status import Refused, bad_request, conflict, expired, not_found
from tests.kube.storage import Storage, now
from tests.kube.typed import unknown_fields, without_unknown

GRACE_SECONDS: Final = 30
STATUS: Final = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a request is about. `name` "" is the whole collection."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    sub: str = ""
    query: dict[str, str] = field(default_factory=dict)

    def admits(self, object: Json) -> bool:
        """Whether the object is in the collection, as it is selected."""
        about = object["metadata"]
        return (
            self.namespace in ("", about.get("namespace", ""))
            and self.name in ("", about["name"])
            and labels_match(
                self.query.get("labelSelector", ""), about.get("labels") or {}
            )
            and fields_match(self.query.get("fieldSelector", ""), object)
        )


@dataclass(slots=True, kw_only=True)
class Verbs:
    """`webhooks` see an object before it is kept, and say why not, or ""."""

    storage: Storage
    kinds: Kinds
    webhooks: list[Callable[[Json], str]] = field(default_factory=list)
    _pages: dict[str, tuple[int, list[Json]]] = field(default_factory=dict)

    def page(self, where: Where) -> Json:
        """A page of `limit`; `continue` goes on in the same snapshot. Raises:
        Refused."""
        if token := where.query.get("continue"):
            version, rest = self._continued(token)
        else:
            version = self.storage.version
            rest = [one for one in self.storage.all(where.kind) if where.admits(one)]
        limit = int(where.query.get("limit") or 0) or len(rest)
        about: Json = {"resourceVersion": str(version)}
        if left := rest[limit:]:
            said = {
                "v": "meta.k8s.io/v1",
                "rv": version,
                "start": left[0]["metadata"]["name"],
            }
            token = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
            self._pages[token] = (version, left)
            about |= {"continue": token, "remainingItemCount": len(left)}
        return {
            "kind": f"{where.kind.kind}List",
            "apiVersion": where.kind.api_version,
            "metadata": about,
            "items": rest[:limit],
        }

    def _continued(self, token: str) -> tuple[int, list[Json]]:
        version, rest = self._pages.get(token, (0, []))
        if version < self.storage.compacted:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter"
            )
        return version, rest

    def get(self, where: Where) -> Json:
        return self.storage.get(where.kind, where.namespace, where.name)

    def create(self, where: Where, object: Json) -> Json:
        """Raises: Refused."""
        object = self._admitted(where, object)
        about = object.setdefault("metadata", {})
        if where.kind.namespaced:
            if about.setdefault("namespace", where.namespace) != where.namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the "
                    "request"
                )
            if self.storage.find(self.kinds["namespaces"], "", where.namespace) is None:
                raise not_found(self.kinds["namespaces"], where.namespace)
        if where.kind.status:
            object.pop(STATUS, None)  # it is set through its subresource alone
        _default(where.kind, object)
        rules.check(where.kind, object)
        rules.check_quota(
            self.storage, self.kinds["resourcequotas"], where.kind, object
        )
        if where.query.get("dryRun") == "All":
            return {
                **object,
                "kind": where.kind.kind,
                "apiVersion": where.kind.api_version,
            }
        return self.storage.create(where.kind, object)

    def replace(self, where: Where, object: Json) -> Json:
        """Raises: Refused."""
        object = self._admitted(where, object)
        expect = object.get("metadata", {}).get("resourceVersion")
        return self._change(where, object, expect)

    def patch(self, where: Where, patch: Any, content_type: str) -> Json:
        """Raises: Refused."""
        old = self.get(where)
        new = self._admitted(where, patched(old, patch, content_type))
        asked = new["metadata"].get("resourceVersion")
        expect = asked if asked != old["metadata"]["resourceVersion"] else None
        return self._change(where, new, expect)

    def _change(self, where: Where, object: Json, expect: str | None) -> Json:
        old = self.get(where)
        if object["metadata"].get("name", where.name) != where.name:
            raise bad_request(
                "the name of the object does not match the name on the URL"
            )
        if (
            object["metadata"].get("uid", old["metadata"]["uid"])
            != old["metadata"]["uid"]
        ):
            raise conflict(
                where.kind, where.name, "Precondition failed: UID in precondition ..."
            )
        if where.sub == STATUS:
            object = {**old, STATUS: object.get(STATUS)}
        elif where.kind.status and STATUS in old:
            object[STATUS] = old[STATUS]
        elif where.kind.status:
            object.pop(STATUS, None)
        object["metadata"].setdefault("name", where.name)
        if where.kind.namespaced:
            object["metadata"].setdefault("namespace", where.namespace)
        rules.check(where.kind, object, old)
        return self.storage.update(where.kind, object, expect=expect)

    def delete(self, where: Where, options: Json) -> Json:
        """https://kubernetes.io/docs/concepts/architecture/garbage-collection/. Raises:
        Refused."""
        old = self.get(where)
        about = old["metadata"]
        wanted = options.get("preconditions") or {}
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != about[name]:
                said = (
                    f"the {name} in the precondition ({wanted[name]}) does not match "
                    f"{about[name]}"
                )
                raise conflict(where.kind, where.name, said)
        policy = options.get("propagationPolicy") or where.query.get(
            "propagationPolicy"
        )
        # batch/v1 keeps the pods unless told otherwise, for old clients' sake
        policy = policy or ("Orphan" if where.kind.kind == "Job" else "Background")
        finalizer = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy)
        if finalizer and where.kind.kind == "Job":
            about["finalizers"] = [*about.get("finalizers", []), finalizer]
        grace = options.get("gracePeriodSeconds", where.query.get("gracePeriodSeconds"))
        if where.kind.kind == "Pod":
            return self._delete_pod(where, old, None if grace is None else int(grace))
        about.setdefault("deletionTimestamp", now())
        if about.get("finalizers"):
            return self._marked(where, old, 0)
        return self.storage.remove(where.kind, where.namespace, where.name)

    def _delete_pod(self, where: Where, pod: Json, grace: int | None) -> Json:
        """https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination"""
        about, spec = pod["metadata"], pod["spec"]
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)
        over = (pod.get(STATUS) or {}).get("phase") in ("Succeeded", "Failed")
        if not spec.get("nodeName") or over:
            grace = 0
        if (
            "deletionTimestamp" in about
            and grace >= about.get("deletionGracePeriodSeconds", 0) > 0
        ):
            return pod  # a second deletion may only shorten the grace
        if grace == 0 and not about.get("finalizers"):
            return self.storage.remove(where.kind, where.namespace, where.name)
        return self._marked(where, pod, grace)

    def _marked(self, where: Where, object: Json, grace: int) -> Json:
        """Being deleted, and still there."""
        fresh = deepcopy(object)
        fresh["metadata"] |= {
            "deletionTimestamp": now(),
            "deletionGracePeriodSeconds": grace,
        }
        self.storage.update(where.kind, fresh)
        stored = self.storage.find(where.kind, where.namespace, where.name)
        return stored if stored is not None else fresh

    def _admitted(self, where: Where, object: Json) -> Json:
        if not isinstance(object, dict):
            raise bad_request("the body is no object")
        kind = (object.get("apiVersion"), object.get("kind"))
        if kind != (None, None) and kind != (where.kind.api_version, where.kind.kind):
            raise bad_request(
                f"{object.get('kind')} in version {kind[0]!r} cannot be handled here"
            )
        object = {
            **object,
            "kind": where.kind.kind,
            "apiVersion": where.kind.api_version,
        }
        if wrong := unknown_fields(object):
            if where.query.get("fieldValidation") == "Strict":
                said = ", ".join(f'unknown field "{path}"' for path in wrong)
                raise bad_request(f"strict decoding error: {said}")
            object = without_unknown(object)
        for webhook in self.webhooks:
            if why := webhook(object):
                said = f'admission webhook "rules.tests" denied the request: {why}'
                raise Refused(403, "Forbidden", said)
        return object


def _default(kind: Kind, object: Json) -> None:
    """What the server fills in."""
    if kind.kind == "Job":
        spec = object.setdefault("spec", {})
        spec.setdefault("suspend", False)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("backoffLimit", 6)
        if "completions" not in spec and "parallelism" not in spec:
            spec |= {"completions": 1, "parallelism": 1}
        spec.setdefault("parallelism", 1)
        object[STATUS] = {}
    elif kind.kind == "Pod":
        spec = object.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
        object[STATUS] = {"phase": "Pending"}
    elif kind.kind == "Secret":
        plain = object.pop("stringData", None) or {}
        coded = {
            name: base64.b64encode(text.encode()).decode()
            for name, text in plain.items()
        }
        object["data"] = {**(object.get("data") or {}), **coded}
        object.setdefault("type", "Opaque")
