"""API calls for services, each as an ApiCall value, and the methods of Client and
AsyncClient for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corral.client.api_calls import ApiCall, quoted, read_as
from corral.client.service_input import read_wire_services
from corral.client.workdir_snapshot import pack

if TYPE_CHECKING:
    from corral.client.spec_input import Spec
    from corral.wire import service_answers as shapes

T = TypeVar("T")


def apply_services_call(
    documents: Sequence[Mapping[str, Any]], *, dry_run: bool
) -> "ApiCall[shapes.ServicesApplied]":
    return ApiCall(
        method="POST",
        path="/v1/services",
        query={"dry_run": int(dry_run)},
        json={"documents": [dict(document) for document in documents]},
        read=read_as("service_answers.ServicesApplied"),
    )


def services_call(*, everything: bool) -> "ApiCall[shapes.ServicesView]":
    return ApiCall(
        method="GET",
        path="/v1/services",
        query={"all": int(everything)},
        read=read_as("service_answers.ServicesView"),
    )


def service_call(name: str) -> "ApiCall[shapes.ServiceView]":
    return ApiCall(
        method="GET",
        path=_service_path(name),
        read=read_as("service_answers.ServiceView"),
    )


def scale_service_call(
    name: str, replicas: int | str, role: str = ""
) -> "ApiCall[shapes.ServiceView]":
    return ApiCall(
        method="POST",
        path=f"{_service_path(name)}/scale",
        json={"replicas": replicas} | ({"role": role} if role else {}),
        read=read_as("service_answers.ServiceView"),
    )


def roll_back_service_call(
    name: str, revision: int | None
) -> "ApiCall[shapes.ServiceView]":
    return ApiCall(
        method="POST",
        path=f"{_service_path(name)}/rollback",
        json={"revision": revision},
        read=read_as("service_answers.ServiceView"),
        repeatable=revision is not None,
    )


def stop_service_call(name: str) -> "ApiCall[shapes.ServiceView]":
    return ApiCall(
        method="DELETE",
        path=_service_path(name),
        read=read_as("service_answers.ServiceView"),
    )


def lent_report_call() -> "ApiCall[shapes.LentReportView]":
    return ApiCall(
        method="GET",
        path="/v1/reports/lent",
        read=read_as("service_answers.LentReportView"),
    )


def _digest_of(path: Path) -> str:
    """Return the digest of a workdir that is not uploaded."""
    with pack(path) as snapshot:
        return snapshot.sha256


def _service_path(name: str) -> str:
    return f"/v1/services/{quoted('service', name, 'corral service ls')}"


class SyncServices:
    """Methods of `Client` for services."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def upload_workdir(self, path: str | Path) -> str:
        raise NotImplementedError

    def apply_services(
        self, spec: "Spec", *, dry_run: bool = False
    ) -> "shapes.ServicesApplied":
        """Create services, or change those that exist, as in a file of `kind: service`:
        a mapping, several mappings, or a file. Return what changes; with `dry_run`
        nothing is changed.

        The workdir is uploaded first. A change of what the replicas run is a new
        revision. For example:

            client.apply_services(
                {"kind": "service", "name": "chat", "model": "hf://org/name",
                 "engine": "vllm", "replicas": "1..4", "resources": {"gpu": 1}}
            )
        """
        documents = read_wire_services(spec)
        digest_of = _digest_of if dry_run else self.upload_workdir
        digests = {path: digest_of(path) for path in documents.workdirs}
        ready = documents.with_workdirs(digests)
        return self._call(apply_services_call(ready, dry_run=dry_run))

    def services(self, *, everything: bool = False) -> "list[shapes.ServiceRow]":
        """Return the services by name. With `everything`, stopped ones are included.
        For example:

            for service in client.services():
                print(service.name, service.ready, service.wanted)
        """
        return self._call(services_call(everything=everything)).services

    def service(self, service: str) -> "shapes.ServiceView":
        """Return one service by its name or id, with its replicas and newest events.
        For example:

            nodes = [one.nodes for one in client.service("chat").replica_list]
        """
        return self._call(service_call(service))

    def scale_service(
        self, service: str, replicas: int | str, *, role: str = ""
    ) -> "shapes.ServiceView":
        """Set how many replicas a service may have; with roles, those of one role. For
        example:

            client.scale_service("chat", "2..8")
            client.scale_service("chat", "1..4", role="prefill")
        """
        return self._call(scale_service_call(service, replicas, role))

    def roll_back_service(
        self, service: str, revision: int | None = None
    ) -> "shapes.ServiceView":
        """Serve an earlier revision again: the one with this number, or None for the
        one before. For example:

            client.roll_back_service("chat", 3)
        """
        return self._call(roll_back_service_call(service, revision))

    def stop_service(self, service: str) -> "shapes.ServiceView":
        """End a service, after its replicas have finished the requests under way. For
        example:

            client.stop_service("chat")
        """
        return self._call(stop_service_call(service))

    def lent_report(self) -> "shapes.LentReportView":
        """Return the room that sleeping replicas of services have lent, and its
        borrowers. For example:

            for lent in client.lent_report().services:
                print(lent.service, lent.lent_gpu_hours)
        """
        return self._call(lent_report_call())


class AsyncServices:
    """Methods of `AsyncClient` for services."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def upload_workdir(self, path: str | Path) -> str:
        raise NotImplementedError

    async def apply_services(
        self, spec: "Spec", *, dry_run: bool = False
    ) -> "shapes.ServicesApplied":
        documents = read_wire_services(spec)
        digests = {
            path: _digest_of(path) if dry_run else await self.upload_workdir(path)
            for path in documents.workdirs
        }
        ready = documents.with_workdirs(digests)
        return await self._call(apply_services_call(ready, dry_run=dry_run))

    async def services(self, *, everything: bool = False) -> "list[shapes.ServiceRow]":
        return (await self._call(services_call(everything=everything))).services

    async def service(self, service: str) -> "shapes.ServiceView":
        return await self._call(service_call(service))

    async def scale_service(
        self, service: str, replicas: int | str, *, role: str = ""
    ) -> "shapes.ServiceView":
        return await self._call(scale_service_call(service, replicas, role))

    async def roll_back_service(
        self, service: str, revision: int | None = None
    ) -> "shapes.ServiceView":
        return await self._call(roll_back_service_call(service, revision))

    async def stop_service(self, service: str) -> "shapes.ServiceView":
        return await self._call(stop_service_call(service))

    async def lent_report(self) -> "shapes.LentReportView":
        return await self._call(lent_report_call())
