"""What the API server refuses: 422 for what cannot be, 403 for what is over a quota."""

import base64
import binascii
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from tests.kube.kinds import Json, Kind
from tests.kube.quantities import amount, asked_by
from tests.kube.status import bad_request, forbidden, invalid
from tests.kube.storage import Storage

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_NAME: Final = re.compile(
    r"([-a-z0-9.]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_SOURCES: Final = ("secret", "configMap", "emptyDir", "hostPath", "persistentVolumeClaim",
                   "projected", "downwardAPI")  # fmt: skip
SECRET_BYTES: Final = 1024 * 1024
Wrong = Iterator[tuple[str, str]]


def check(kind: Kind, object: Json, old: Json | None = None) -> None:
    """Raises: Refused (422)."""
    name = object["metadata"].get("name") or object["metadata"].get("generateName", "")
    causes = [*_metadata(kind, object["metadata"])]
    if kind.kind == "Job":
        causes += [*_job(object), *(_job_change(object, old) if old else ())]
    elif kind.kind == "Pod":
        causes += [
            *_pod(object["spec"], "spec"),
            *(_pod_change(object, old) if old else ()),
        ]
    elif kind.kind == "Secret":
        causes += [*_secret(object)]
    if causes:
        raise invalid(kind, name, causes)


def _metadata(kind: Kind, about: Json) -> Wrong:
    name = about.get("name") or about.get("generateName", "") + "x"
    if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
        yield (
            "metadata.name",
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain',
        )
    for label, value in (about.get("labels") or {}).items():
        if not _NAME.fullmatch(label):
            yield (
                "metadata.labels",
                f'Invalid value: "{label}": name part must consist of ...',
            )
        if not isinstance(value, str) or not _VALUE.fullmatch(value) or len(value) > 63:
            yield (
                "metadata.labels",
                f'Invalid value: "{value}": a valid label must be ...',
            )
    for label, value in (about.get("annotations") or {}).items():
        if not _NAME.fullmatch(label) or not isinstance(value, str):
            yield "metadata.annotations", f'Invalid value: "{label}"'


def _job(object: Json) -> Wrong:
    """https://kubernetes.io/docs/concepts/workloads/controllers/job/"""
    spec = object.get("spec") or {}
    if len(object["metadata"].get("name", "")) > 63:
        yield "metadata.name", "must be no more than 63 characters"
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield "spec.completions", "Required value: when completion mode is Indexed"
    for field in (
        "completions",
        "parallelism",
        "backoffLimit",
        "activeDeadlineSeconds",
    ):
        if (spec.get(field) or 0) < 0:
            yield (
                f"spec.{field}",
                f"Invalid value: {spec[field]}: must be greater than or equal to 0",
            )
    template = (spec.get("template") or {}).get("spec") or {}
    if template.get("restartPolicy") not in ("OnFailure", "Never"):
        yield (
            "spec.template.spec.restartPolicy",
            'Required value: valid values: "OnFailure", "Never"',
        )
    yield from _metadata_of_template(spec.get("template") or {})
    yield from _pod(template, "spec.template.spec")


def _metadata_of_template(template: Json) -> Wrong:
    for label, value in ((template.get("metadata") or {}).get("labels") or {}).items():
        if not _NAME.fullmatch(label) or not _VALUE.fullmatch(str(value)):
            yield "spec.template.labels", f'Invalid value: "{label}={value}"'


def _job_change(object: Json, old: Json) -> Wrong:
    new, was = object["spec"], old["spec"]
    if new.get("completions") != was.get("completions"):
        yield "spec.completions", "field is immutable"
    if new.get("template") != was.get("template") and not was.get("suspend"):
        yield "spec.template", "Invalid value: field is immutable"


def _pod_change(object: Json, old: Json) -> Wrong:
    new, was = dict(object["spec"]), dict(old["spec"])
    for free in ("nodeName", "activeDeadlineSeconds", "tolerations",
                 "terminationGracePeriodSeconds"):  # fmt: skip
        new.pop(free, None)
        was.pop(free, None)
    if new != was:
        yield "spec", "Forbidden: pod updates may not change fields other than ..."


def _pod(spec: Json, at: str) -> Wrong:
    volumes = spec.get("volumes") or []
    names = [volume.get("name", "") for volume in volumes]
    for i, volume in enumerate(volumes):
        if not _LABEL.fullmatch(volume.get("name", "")):
            yield f"{at}.volumes[{i}].name", f'Invalid value: "{volume.get("name")}"'
        if names.count(volume.get("name")) > 1:
            yield f"{at}.volumes[{i}].name", f'Duplicate value: "{volume["name"]}"'
        if len([source for source in _SOURCES if source in volume]) != 1:
            yield f"{at}.volumes[{i}]", "must specify exactly one volume type"
    if not spec.get("containers"):
        yield f"{at}.containers", "Required value"
    for i, container in enumerate(spec.get("containers") or []):
        yield from _container(container, f"{at}.containers[{i}]", names)
    yield from _affinity(spec.get("affinity") or {}, f"{at}.affinity")


def _container(container: Json, at: str, volumes: list[str]) -> Wrong:
    if not _LABEL.fullmatch(container.get("name", "")):
        yield f"{at}.name", "Required value"
    if not container.get("image"):
        yield f"{at}.image", "Required value"
    paths = [mount.get("mountPath") for mount in container.get("volumeMounts") or []]
    for i, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            yield f"{at}.volumeMounts[{i}].name", f'Not found: "{mount.get("name")}"'
        if paths.count(mount.get("mountPath")) > 1:
            yield f"{at}.volumeMounts[{i}].mountPath", "Invalid value: must be unique"
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield (
                f"{at}.volumeMounts[{i}].subPathExpr",
                "subPathExpr and subPath are exclusive",
            )
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in {**limits, **requests}.items():
        try:
            amount(value)
        except ValueError as wrong:
            yield f"{at}.resources[{name}]", f"Invalid value: {wrong}"
    for name in requests:
        if "/" in name and limits.get(name) is None:
            yield (
                f"{at}.resources.limits",
                "Limit must be set for non overcommitable resources",
            )
        elif "/" in name and amount(limits[name]) != amount(requests[name]):
            yield (
                f"{at}.resources.requests",
                f"must be equal to {name} limit of {limits[name]}",
            )
        elif name in limits and amount(requests[name]) > amount(limits[name]):
            yield (
                f"{at}.resources.requests",
                f"must be less than or equal to {name} limit",
            )


def _affinity(affinity: Json, at: str) -> Wrong:
    required = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {"nodeSelectorTerms": [{}]}
    if not required.get("nodeSelectorTerms"):
        yield f"{at}.nodeAffinity", "nodeSelectorTerms: Required value"
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if (
                field.get("key") != "metadata.name"
                or len(field.get("values") or []) != 1
            ):
                yield f"{at}.matchFields", "must be only one value for metadata.name"
    anti = (affinity.get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or []
    for term in anti:
        if not term.get("topologyKey"):
            yield (
                f"{at}.podAntiAffinity.topologyKey",
                "Required value: can not be empty",
            )


def _secret(object: Json) -> Wrong:
    size = 0
    for key, value in (object.get("data") or {}).items():
        if not _DATA_KEY.fullmatch(key):
            yield (
                f"data[{key}]",
                "a valid config key must consist of alphanumeric characters ...",
            )
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError, TypeError):
            raise bad_request(
                f"Secret in version v1 cannot be handled: {key} is no base64"
            ) from None
    if size > SECRET_BYTES:
        yield "data", f"Too long: may not be more than {SECRET_BYTES} bytes"


def check_quota(storage: Storage, quotas: Kind, kind: Kind, object: Json) -> None:
    """https://kubernetes.io/docs/concepts/policy/resource-quotas/. Raises: Refused
    (403)."""
    namespace = object["metadata"].get("namespace", "")
    for quota in storage.all(quotas, namespace):
        hard = (quota.get("spec") or {}).get("hard") or {}
        asked = {
            name: one for name, one in _counted(kind, object).items() if name in hard
        }
        used = {name: amount(0) for name in asked}
        for other in storage.all(kind, namespace):
            if (other.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for name, one in _counted(kind, other).items():
                if name in used:
                    used[name] += one
        over = [name for name in asked if used[name] + asked[name] > amount(hard[name])]
        if over:
            said = "; ".join(
                f"{word}: " + ",".join(f"{name}={found[name]}" for name in over)
                for word, found in (
                    ("requested", asked),
                    ("used", used),
                    ("limited", hard),
                )
            ).replace("; ", ", ")
            why = f"exceeded quota: {quota['metadata']['name']}, {said}"
            about = object["metadata"]
            raise forbidden(kind, about.get("name") or about["generateName"], why)


def _counted(kind: Kind, object: Json) -> dict[str, Fraction]:
    found = {f"count/{kind.qualified}": amount(1), kind.plural: amount(1)}
    if kind.kind == "Pod":
        for name, value in asked_by(object).items():
            found |= {f"requests.{name}": value, f"limits.{name}": value}
            if "/" not in name:
                found[name] = value
    return found
