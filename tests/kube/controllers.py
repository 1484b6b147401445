"""The controllers beside the API server: Jobs, the scheduler, the garbage collector.

https://kubernetes.io/docs/concepts/workloads/controllers/job/
"""

from dataclasses import dataclass, field
from typing import Final

from tests.kube.kinds import Json, Kind, Kinds
from tests.kube.scheduling import is_over, place
from tests.kube.status import Refused
from tests.kube.storage import Storage, now
from tests.kube.verbs import Verbs, Where

INDEX: Final = "batch.kubernetes.io/job-completion-index"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


@dataclass(slots=True, kw_only=True)
class Controllers:
    """`reconcile` does what is to be done now; it is called after each change."""

    storage: Storage
    verbs: Verbs
    kinds: Kinds
    events: int = field(default=0)

    def reconcile(self) -> None:
        for job in self.storage.all(self.kinds["jobs"]):
            self._job(job)
        self._collect()
        self._schedule()

    def _pods_of(self, owner: Json) -> list[Json]:
        return [
            pod
            for pod in self.storage.all(
                self.kinds["pods"], owner["metadata"]["namespace"]
            )
            if _owned_by(pod, owner["metadata"]["uid"])
        ]

    def _job(self, job: Json) -> None:
        """One Job, with backoffLimit 0 as the tests have it: the first failure is the
        last."""
        spec, pods = job["spec"], self._pods_of(job)
        for pod in pods:
            if is_over(pod) and TRACKING in pod["metadata"].get("finalizers", []):
                self._untrack(pod)
        if job["metadata"].get("deletionTimestamp"):
            return
        status = dict(job.get("status") or {})
        failed = [pod for pod in pods if (pod["status"]).get("phase") == "Failed"]
        done = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
        active = [pod for pod in pods if not is_over(pod)]
        finished = _condition(status, "Complete") or _condition(status, "Failed")
        if failed and not finished and len(failed) > spec["backoffLimit"]:
            told = "Job has reached the specified backoff limit"
            set_condition(status, "Failed", "True", "BackoffLimitExceeded", told)
            finished = True
        elif not finished and len(done) == spec.get("completions"):
            set_condition(status, "Complete", "True", "CompletionsReached", "")
            status["completionTime"] = now()
            finished = True
        if finished or spec.get("suspend"):
            for pod in active:
                self._delete_pod(pod)
        else:
            status.setdefault("startTime", now())
            self._start_pods(job, pods)
        if spec.get("suspend") and not finished:
            set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended")
            status.pop("startTime", None)
        elif _condition(status, "Suspended"):
            set_condition(status, "Suspended", "False", "JobResumed", "Job resumed")
        ready = [pod for pod in active if pod["status"].get("phase") == "Running"]
        status |= {"active": len(active), "ready": len(ready), "failed": len(failed),
                   "succeeded": len(done)}  # fmt: skip
        self._set_status(self.kinds["jobs"], job, status)

    def _start_pods(self, job: Json, pods: list[Json]) -> None:
        about, spec = job["metadata"], job["spec"]
        there = {pod["metadata"]["annotations"][INDEX] for pod in pods}
        for index in range(min(spec["parallelism"], spec.get("completions") or 1)):
            if str(index) in there:
                continue
            template = spec["template"]
            meta = template.get("metadata") or {}
            made = {
                "metadata": {
                    "generateName": f"{about['name']}-{index}-",
                    "namespace": about["namespace"],
                    "labels": {
                        **(meta.get("labels") or {}),
                        "batch.kubernetes.io/job-name": about["name"],
                        "batch.kubernetes.io/controller-uid": about["uid"],
                        INDEX: str(index),
                        "job-name": about["name"],
                    },
                    "annotations": {**(meta.get("annotations") or {}), INDEX: str(index)},
                    "ownerReferences": [
                        {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"],
                         "uid": about["uid"], "controller": True, "blockOwnerDeletion": True}
                    ],
                    "finalizers": [TRACKING],
                },
                "spec": {**template["spec"], "hostname": f"{about['name']}-{index}"},
            }  # fmt: skip
            try:
                self.verbs.create(
                    Where(kind=self.kinds["pods"], namespace=about["namespace"]), made
                )
            except Refused as refused:
                self.tell(
                    job, "FailedCreate", f"Error creating: {refused.message}", "Warning"
                )
                return

    def _untrack(self, pod: Json) -> None:
        finalizers = [one for one in pod["metadata"]["finalizers"] if one != TRACKING]
        pod["metadata"]["finalizers"] = finalizers
        self.storage.update(self.kinds["pods"], pod)

    def _delete_pod(self, pod: Json, grace: int | None = None) -> None:
        if "deletionTimestamp" in pod["metadata"] and grace is None:
            return
        about = pod["metadata"]
        where = Where(
            kind=self.kinds["pods"], namespace=about["namespace"], name=about["name"]
        )
        self.verbs.delete(where, {} if grace is None else {"gracePeriodSeconds": grace})

    def _collect(self) -> None:
        """https://kubernetes.io/docs/concepts/architecture/garbage-collection/"""
        jobs = {
            job["metadata"]["uid"]: job for job in self.storage.all(self.kinds["jobs"])
        }
        nodes = {
            node["metadata"]["name"]: node
            for node in self.storage.all(self.kinds["nodes"])
        }
        for job in jobs.values():
            self._finalize(job)
        jobs = {
            job["metadata"]["uid"]: job for job in self.storage.all(self.kinds["jobs"])
        }
        for plural in ("pods", "secrets"):
            for one in self.storage.all(self.kinds[plural]):
                owners = one["metadata"].get("ownerReferences") or []
                if owners and not any(owner["uid"] in jobs for owner in owners):
                    self._orphaned(plural, one)
        for pod in self.storage.all(self.kinds["pods"]):
            name = pod["spec"].get("nodeName")
            taints = ((nodes.get(name) or {}).get("spec") or {}).get("taints") or []
            out = any(taint["key"] == OUT_OF_SERVICE for taint in taints)
            if name and (
                name not in nodes or (out and "deletionTimestamp" in pod["metadata"])
            ):
                self._release(pod)

    def _finalize(self, job: Json) -> None:
        finalizers = job["metadata"].get("finalizers") or []
        if not job["metadata"].get("deletionTimestamp"):
            return
        pods = self._pods_of(job)
        if "orphan" in finalizers:
            for pod in pods:
                pod["metadata"].pop("ownerReferences")
                pod["metadata"]["finalizers"] = []
                self.storage.update(self.kinds["pods"], pod)
            finalizers = [one for one in finalizers if one != "orphan"]
        elif "foregroundDeletion" in finalizers:
            for pod in pods:
                self._delete_pod(pod)
            if not pods:
                finalizers = []
        job["metadata"]["finalizers"] = finalizers
        self.storage.update(self.kinds["jobs"], job)

    def _orphaned(self, plural: str, one: Json) -> None:
        kind = self.kinds[plural]
        if plural == "pods":
            if TRACKING in (one["metadata"].get("finalizers") or []):
                self._untrack(one)
            found = self.storage.find(
                kind, one["metadata"]["namespace"], one["metadata"]["name"]
            )
            if found is not None:
                self._delete_pod(found)
        else:
            self.storage.remove(
                kind, one["metadata"]["namespace"], one["metadata"]["name"]
            )

    def _release(self, pod: Json) -> None:
        """Its node is gone for good: nobody is left who could say that it ended."""
        if not is_over(pod):
            status = {**pod["status"], "phase": "Failed", "reason": "PodGC"}
            set_condition(
                status,
                "DisruptionTarget",
                "True",
                "DeletionByPodGC",
                "its node is gone",
            )
            self._set_status(self.kinds["pods"], pod, status)
        about = pod["metadata"]
        self._delete_pod(
            self.storage.get(self.kinds["pods"], about["namespace"], about["name"]), 0
        )

    def _schedule(self) -> None:
        pods = list(self.storage.all(self.kinds["pods"]))
        nodes = list(self.storage.all(self.kinds["nodes"]))
        for pod in pods:
            if (
                pod["spec"].get("nodeName")
                or is_over(pod)
                or pod["metadata"].get("deletionTimestamp")
            ):
                continue
            node, why = place(pod, nodes, pods)
            status = dict(pod["status"])
            if node:
                pod["spec"]["nodeName"] = node
                set_condition(status, "PodScheduled", "True", "", "")
            else:
                set_condition(status, "PodScheduled", "False", "Unschedulable", why)
            pod["status"] = status
            self.storage.update(self.kinds["pods"], pod)

    def tell(
        self, about: Json, reason: str, message: str, type: str = "Normal"
    ) -> None:
        """Write an event, once for the same words."""
        meta = about["metadata"]
        for one in self.storage.all(self.kinds["events"], meta["namespace"]):
            if (one["involvedObject"]["uid"], one["message"]) == (meta["uid"], message):
                return
        self.events += 1
        named = {
            "name": f"{meta['name']}.{self.events:x}",
            "namespace": meta["namespace"],
        }
        involved = {"kind": about["kind"], "name": meta["name"], "namespace": meta["namespace"],
                    "uid": meta["uid"], "apiVersion": about["apiVersion"]}  # fmt: skip
        event = {
            "metadata": named,
            "involvedObject": involved,
            "reason": reason,
            # fmt: skip
            "message": message,
            "type": type,
            "lastTimestamp": now(),
            "count": 1,
        }
        self.storage.create(self.kinds["events"], event)

    def _set_status(self, kind: Kind, object: Json, status: Json) -> None:
        if status != object.get("status"):
            about = object["metadata"]
            fresh = self.storage.find(kind, about.get("namespace", ""), about["name"])
            if fresh is not None:
                self.storage.update(kind, {**fresh, "status": status})


def _owned_by(object: Json, uid: str) -> bool:
    return any(
        one["uid"] == uid for one in object["metadata"].get("ownerReferences") or []
    )


def _condition(status: Json, type: str) -> bool:
    return any(
        one["type"] == type and one["status"] == "True"
        for one in status.get("conditions") or []
    )


def set_condition(
    status: Json, type: str, value: str, reason: str, message: str
) -> None:
    told = {"type": type, "status": value, "reason": reason, "message": message}
    told = {name: one for name, one in told.items() if one}
    others = [one for one in status.get("conditions") or [] if one["type"] != type]
    same = [one for one in status.get("conditions") or [] if one["type"] == type]
    moment = now()
    if same and {**same[0], "lastTransitionTime": ""} == {
        **told,
        "lastTransitionTime": "",
    }:
        moment = same[0]["lastTransitionTime"]
    status["conditions"] = [*others, {**told, "lastTransitionTime": moment}]
