"""Jobs of a service's replicas: their ids, specs and keys."""

import hashlib
import hmac
from dataclasses import replace
from typing import Final

from corral.domain.ids import AttemptNumber, JobId
from corral.domain.job import Disconnect, Job, JobSpec, ReplicaRole
from corral.domain.service import Service
from corral.domain.service_access import fetched_adapters
from corral.domain.service_affinity import Affinity
from corral.domain.serving_roles import CacheTransfer, ServingRole

KEY_CHARACTERS: Final = 40


def finish_seconds(service: Service | None, job: Job) -> float:
    """Return for how many seconds at most a replica that is being preempted finishes
    its requests, before its ranks are stopped; 0 for any other job."""
    row = service.row_of(job.id) if service is not None else None
    if service is None or row is None or not row.is_finishing(job):
        return 0.0
    return service.spec.drain_seconds


def replica_id(service: JobId, number: int) -> JobId:
    """Return the id of the job of a replica."""
    return JobId(f"{service}_{number}")


def replica_key(role: ReplicaRole, job: JobId, attempt: AttemptNumber) -> str:
    """Return the key that a replica's engine requires of the gateway. Each attempt has
    a key of its own, so that a port that another attempt has taken refuses it."""
    text = f"{job}.{attempt}".encode()
    digest = hmac.new(role.key_seed.encode(), text, hashlib.sha256).hexdigest()
    return digest[:KEY_CHARACTERS]


def replica_spec(
    service: Service,
    revision: int,
    number: int,
    role: ServingRole = ServingRole.WHOLE,
) -> JobSpec:
    """Return the spec of the job of one replica. A replica on a node that is silent for
    too long is replaced, unless its spec says otherwise."""
    spec = service.spec_of(revision)
    replica = spec.replica_of(role)
    return replace(
        replica,
        name=f"{service.name}_{number}",
        array_index=number,
        disconnect=replica.disconnect or Disconnect.REPLACE,
        replica=ReplicaRole(
            service=service.name,
            revision=revision,
            probe=spec.probe,
            key_seed=service.key_seed,
            sleep=spec.sleep_calls,
            # replicas of SGLang cannot complete a request alone
            model_check=None
            if spec.transfer is CacheTransfer.SGLANG
            else spec.model_check,
            has_kv_events=spec.affinity is Affinity.EXACT,
            role=role,
            adapters=fetched_adapters(spec.adapters),
        ),
    )
