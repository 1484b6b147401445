"""Workloads of Kueue, read as jobs to import from the output of `kubectl get workloads
-A -o json` (or yaml).

Source: https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta1/, Workload. A pod counts
as a node. A Workload names no user, so the namespace counts as the user.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from corral.domain.ids import QueueName, UserName
from corral.domain.imported import Imported
from corral.domain.resources import Resources, Shape
from corral.domain.units import MILLIS_PER_GPU

GPU: Final = re.compile(
    r"(nvidia\.com|amd\.com|intel\.com|habana\.ai)/(gpu|gaudi)|gpu\.intel\.com/.+"
)
_QUANTITY: Final = re.compile(r"(\d{1,9})(m|k)?", re.ASCII)
_PARTS: Final = {"": 1.0, "m": 0.001, "k": 1000.0}


def workloads_of(lines: Iterable[str]) -> Iterator[Imported | str | None]:
    """Yield one value for each workload: its job; a text about the fault, with the
    number of the item, if it cannot be read; or None if it never ran or has not ended.

    Raises: ValueError for a file that is not a list of workloads.
    """
    for number, item in enumerate(_load_workloads("".join(lines)), start=1):
        item_text = f"item {number}"
        try:
            item_text = f"item {number} ({_namespaced_name(item)})"
            yield _job_from_workload(item)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fault_text = f"{error} is missing" if isinstance(error, KeyError) else error
            yield f"{item_text}: {fault_text}"


def _load_workloads(text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        loaded = json.loads(text)
    else:
        import yaml

        try:
            loaded = yaml.load(
                text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            )  # noqa: S506
        except yaml.YAMLError as error:
            raise ValueError(f"the file is neither JSON nor YAML: {error}") from None
    if not isinstance(loaded, Mapping) or not isinstance(loaded.get("items", []), list):
        raise ValueError("the file has no list of items")
    items = loaded.get("items", [loaded])
    if not any(
        isinstance(manifest, Mapping) and manifest.get("kind") == "Workload"
        for manifest in items
    ):
        raise ValueError("no item of the file is a Workload")
    return list(items)


def _namespaced_name(item: Mapping[str, Any]) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _job_from_workload(item: Mapping[str, Any]) -> Imported | None:
    """Return the job of a workload; None if it never ran or is not over. Raises:
    ValueError, KeyError, TypeError, AttributeError for an item that is not a Workload.
    """
    if item["kind"] != "Workload":
        raise ValueError(f"the item is a {item['kind']}, not a Workload")
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    conditions = {
        condition["type"]: condition
        for condition in status.get("conditions") or ()
        if condition["status"] == "True"
    }
    begun = conditions.get("Admitted") or conditions.get("QuotaReserved")
    if begun is None or "Finished" not in conditions:
        return None
    started, end_time = (
        _transition_time(begun),
        _transition_time(conditions["Finished"]),
    )
    if end_time <= started:
        return None
    admission = status.get("admission") or {}
    owner: Mapping[str, Any] = next(iter(meta.get("ownerReferences") or ()), {})
    return Imported(
        id=f"kueue:{meta.get('uid') or _namespaced_name(item)}",
        name=str(owner.get("name") or meta["name"]),
        user=UserName(str(meta["namespace"])),
        queue=QueueName(
            str(admission.get("clusterQueue") or spec.get("queueName") or "")
        ),
        shape=_shape_of_pod_sets(
            spec.get("podSets") or (), admission.get("podSetAssignments") or ()
        ),
        submitted_at=min(_parse_timestamp(meta["creationTimestamp"]), started),
        started_at=started,
        ended_at=end_time,
        seconds=end_time - started,
        state=str(conditions["Finished"].get("reason") or "Finished"),
        priority=int(spec.get("priority") or 0),
        limit_seconds=float(spec.get("maximumExecutionTimeSeconds") or 0.0) or None,
    )


def _transition_time(condition: Mapping[str, Any]) -> float:
    return _parse_timestamp(condition["lastTransitionTime"])


def _parse_timestamp(text: object) -> float:
    moment = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    if moment.tzinfo is None:
        raise ValueError(f"the time {str(text)[:60]!r} has no time zone")
    return moment.timestamp()


def _shape_of_pod_sets(
    asked: Iterable[Mapping[str, Any]], given: Iterable[Mapping[str, Any]]
) -> Shape:
    """Return the number of pods with GPUs (as nodes) and the GPUs of each, from what
    Kueue assigned (`given`), else from the request (`asked`). GPUs that do not divide
    evenly over the pods count as one pod."""
    requested_sets = {str(pod_set.get("name", "")): pod_set for pod_set in asked}
    assigned = {str(pod_set.get("name", "")): pod_set for pod_set in given}
    pods, gpus = 0, 0.0
    for name in requested_sets | assigned:
        count, own_gpus = _of_pods(requested_sets.get(name, {}), assigned.get(name, {}))
        pods, gpus = pods + count * (own_gpus > 0), gpus + own_gpus
    pods, whole_gpus = max(1, pods), round(gpus)
    if whole_gpus % pods:
        pods = 1
    return Shape(
        nodes=pods, resources=Resources(gpu_millis=whole_gpus // pods * MILLIS_PER_GPU)
    )


def _of_pods(asked: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[int, float]:
    """Return (pods, GPUs of all pods) of one pod set, as assigned (`given`), else as
    requested."""
    count = int(given.get("count") or asked.get("count") or 1)
    usage = given.get("resourceUsage")
    if usage is not None:
        return count, _count_gpus(usage)
    containers = ((asked.get("template") or {}).get("spec") or {}).get(
        "containers"
    ) or ()
    container_resources = [
        (container.get("resources") or {}) for container in containers
    ]
    return count, count * sum(
        _count_gpus(container.get("requests") or container.get("limits") or {})
        for container in container_resources
    )


def _count_gpus(resources: Mapping[str, Any]) -> float:
    return sum(
        _parse_quantity(value)
        for name, value in resources.items()
        if GPU.fullmatch(name)
    )


def _parse_quantity(value: object) -> float:
    """Parse a Kubernetes quantity of GPUs. Raises: ValueError if it is not valid."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{str(value)[:60]!r} is not a number of GPUs")
    return int(match[1]) * _PARTS[match[2] or ""]
