"""Names and labels of Corral's objects in Kubernetes.

Names follow the rules of
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from corral.domain.ids import AttemptNumber, ClusterId, JobId
from corral.domain.observed_state import AttemptKey

MANAGED: Final = "app.kubernetes.io/managed-by"
CLUSTER: Final = "corral.dev/cluster"
JOB: Final = "corral.dev/job"
ATTEMPT: Final = "corral.dev/attempt"
NAME: Final = "corral.dev/name"  # of the job, as its user wrote it
OWNER: Final = "corral.dev/owner"
NODES: Final = "corral.dev/nodes"  # of the gang, by node rank: JSON
HANDED: Final = "corral.dev/handed-over"  # on a Secret: its Job has been made
QUEUE: Final = "kueue.x-k8s.io/queue-name"


def short_cluster(cluster: ClusterId) -> str:
    """Return eight hexadecimal digits that distinguish clusters which share a
    namespace."""
    return sha256(cluster.encode()).hexdigest()[:8]


def name_of(cluster: str, key: AttemptKey) -> str:
    """Return the name of the Job, the pods' prefix and the Secret of an attempt:
    corral-1a2b3c4d-j17-0-3-1."""
    return f"corral-{cluster}-{key[0].replace('_', '-')}-{key[1]}"


def head_name(cluster: str) -> str:
    """Return the name of the ConfigMap with the head's address."""
    return f"corral-{cluster}-head"


def labels_of(cluster: str, key: AttemptKey) -> dict[str, str]:
    """Return the labels by which the objects of an attempt are found."""
    return {MANAGED: "corral", CLUSTER: cluster, JOB: key[0], ATTEMPT: str(key[1])}


def key_of(labels: Mapping[str, str] | None) -> AttemptKey | None:
    """Return the attempt to which an object belongs; None if its labels do not name
    one."""
    label_values = labels or {}
    number = label_values.get(ATTEMPT, "")
    if JOB not in label_values or not number.isdecimal():
        return None
    return JobId(label_values[JOB]), AttemptNumber(int(number))
