"""Check of the rights of the head's account in Kubernetes, before anything depends on
them."""

import asyncio
from dataclasses import dataclass
from typing import Final

from lightkube import ApiError
from lightkube.models.authorization_v1 import (
    ResourceAttributes,
    SelfSubjectAccessReviewSpec,
)
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview

from corral.engines.kubernetes.api_server import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesRight:
    """One verb on one resource, as in a Role."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def _make_rights(group: str, resource: str, verbs: str) -> tuple[KubernetesRight, ...]:
    return tuple(
        KubernetesRight(verb=verb, group=group, resource=resource)
        for verb in verbs.split()
    )


# deploy/kubernetes/roles.yaml grants just these; tests/engines/kubernetes hold the two
# together.
IN_NAMESPACE: Final = (
    *_make_rights("batch", "jobs", "get list watch create delete"),
    *_make_rights("", "pods", "get list watch delete"),
    *_make_rights("", "secrets", "get list watch create update delete"),
    *_make_rights("", "configmaps", "get create update"),
    *_make_rights("", "events", "list"),
    *_make_rights("", "persistentvolumeclaims", "get"),
)
IN_CLUSTER: Final = (
    *_make_rights("", "nodes", "list watch"),
    *_make_rights("", "pods", "list watch"),
)


async def missing_rights(access: Access, namespace: str) -> str:
    """Return a sentence that names the rights that the account lacks; "" if it has all.

    If the server does not answer this question, which every user may ask, no right
    counts as missing.

    Raises: Trouble.
    """
    kubernetes_rights = [(right, namespace) for right in IN_NAMESPACE] + [
        (right, "") for right in IN_CLUSTER
    ]
    allowed = await asyncio.gather(
        *(_has_right(access, right, scope) for right, scope in kubernetes_rights)
    )
    lacks = [
        pair for pair, may in zip(kubernetes_rights, allowed, strict=True) if not may
    ]
    missing_text = ", ".join(str(right) for right, scope in lacks if scope)
    everywhere = ", ".join(str(right) for right, scope in lacks if not scope)
    missing_phrases = (
        [f"{missing_text} in namespace {namespace}"] if missing_text else []
    )
    missing_phrases += [f"{everywhere} in the whole cluster"] if everywhere else []
    if not missing_phrases:
        return ""
    return (
        f"the account of the head may not {' nor '.join(missing_phrases)}; apply "
        "deploy/kubernetes/roles.yaml to grant this"
    )


async def _has_right(access: Access, right: KubernetesRight, namespace: str) -> bool:
    attributes = ResourceAttributes(
        verb=right.verb,
        group=right.group,
        resource=right.resource,
        namespace=namespace or None,
    )
    review = SelfSubjectAccessReview(
        spec=SelfSubjectAccessReviewSpec(resourceAttributes=attributes)
    )
    answer = await access.ask(_create_review(access, review))
    return answer is None or answer.status is None or answer.status.allowed


async def _create_review(
    access: Access, review: SelfSubjectAccessReview
) -> SelfSubjectAccessReview | None:
    try:
        return await access.client.create(review)
    except ApiError as wrong:
        if wrong.status.code in (403, 404, 405):
            return None
        raise
