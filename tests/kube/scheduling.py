"""Which node a pod goes to, or the sentence that Kubernetes says why none will do.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from tests.kube.kinds import Json
from tests.kube.quantities import amount, asked_by
from tests.kube.selectors import labels_match

HOSTNAME = "kubernetes.io/hostname"


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def place(pod: Json, nodes: Sequence[Json], pods: Sequence[Json]) -> tuple[str, str]:
    """(node, "") or ("", why not)."""
    against: Counter[str] = Counter()
    for node in nodes:
        why = _why_not(pod, node, pods)
        if not why:
            return node["metadata"]["name"], ""
        against.update(why)
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(against.items()))
    asked = f"0/{len(nodes)} nodes are available"
    return "", f"{asked}: {reasons}. preemption: {asked}: No preemption victims found."


def _why_not(pod: Json, node: Json, pods: Sequence[Json]) -> list[str]:
    spec, about = pod["spec"], node["metadata"]
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(
            spec, taint
        ):
            return [
                f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
            ]
    if (node.get("spec") or {}).get("unschedulable"):
        return ["node(s) were unschedulable"]
    if not _selected(spec, about):
        return ["node(s) didn't match Pod's node affinity/selector"]
    here = [
        one
        for one in pods
        if one["spec"].get("nodeName") == about["name"] and not is_over(one)
    ]
    if any(_repels(spec, other) for other in here):
        return ["node(s) didn't match pod anti-affinity rules"]
    return _lacks(pod, node, here)


def _tolerated(spec: Json, taint: Json) -> bool:
    for one in spec.get("tolerations") or []:
        if one.get("effect") not in (None, "", taint["effect"]):
            continue
        if one.get("operator") == "Exists" and one.get("key") in (
            None,
            "",
            taint["key"],
        ):
            return True
        if one.get("key") == taint["key"] and one.get("value", "") == taint.get(
            "value", ""
        ):
            return True
    return False


def _selected(spec: Json, about: Json) -> bool:
    labels = about.get("labels") or {}
    if any(
        labels.get(name) != value
        for name, value in (spec.get("nodeSelector") or {}).items()
    ):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is None:
        return True
    return any(_term(term, about, labels) for term in required["nodeSelectorTerms"])


def _term(term: Json, about: Json, labels: Json) -> bool:
    fields = all(
        (about["name"] in one["values"]) == (one["operator"] == "In")
        for one in term.get("matchFields") or []
    )
    words = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}",
             "DoesNotExist": "!{key}"}  # fmt: skip
    return fields and all(
        labels_match(
            words[one["operator"]].format(
                key=one["key"], values=",".join(one.get("values") or [])
            ),
            labels,
        )
        for one in term.get("matchExpressions") or []
    )


def _repels(spec: Json, other: Json) -> bool:
    terms = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or []
    labels = other["metadata"].get("labels") or {}
    for term in terms:
        wanted = (term.get("labelSelector") or {}).get("matchLabels") or {}
        same = all(labels.get(name) == value for name, value in wanted.items())
        if same and term["topologyKey"] == HOSTNAME:
            return True
    return False


def _lacks(pod: Json, node: Json, here: Sequence[Json]) -> list[str]:
    free = {
        name: amount(value) for name, value in node["status"]["allocatable"].items()
    }
    for other in here:
        for name, value in asked_by(other).items():
            free[name] = free.get(name, Fraction(0)) - value
    return [
        f"Insufficient {name}"
        for name, value in asked_by(pod).items()
        if value > free.get(name, Fraction(0))
    ]
