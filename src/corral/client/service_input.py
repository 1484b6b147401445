"""Reading of services and their workdirs in the forms that a caller may give."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from corral.client.active_environment import active_environment, with_active_environment
from corral.client.spec_input import Spec, WireSpecs, workdir_path
from corral.domain.errors import SpecInvalid

if TYPE_CHECKING:
    from corral.wire.yaml_document import Document


def read_wire_services(spec: Spec) -> WireSpecs:
    """Read the documents of services and check everything that can be checked by the
    client, before anything is sent. A relative path of a workdir is resolved against
    the folder of the file, or without a file against the current directory.

    Raises: SpecInvalid, with file and line if there is a file.
    """
    from corral.wire.service_document import read_service

    documents, folder = _documents_of(spec)
    if not documents:
        raise SpecInvalid(
            "the list of services is empty", hint="give at least one service"
        )
    parsed = [read_service(document) for document in documents]
    active = active_environment()
    return WireSpecs(
        values=tuple(
            with_active_environment(service.document.value, active)
            for service in parsed
        ),
        paths=tuple(
            workdir_path(service.document, service.spec.replica.workdir, folder)
            for service in parsed
        ),
    )


def _documents_of(spec: Spec) -> "tuple[list[Document], Path]":
    """Return the documents, and the folder where a relative path begins."""
    from corral.wire.spec_reader import read_documents
    from corral.wire.yaml_document import Document

    if isinstance(spec, str | Path):
        return read_documents(Path(spec)), Path(spec).absolute().parent
    if isinstance(spec, Mapping):
        return [Document(value=dict(spec), source="")], Path.cwd()
    return [
        Document(value=dict(value), source=f"services[{number}]")
        for number, value in enumerate(spec)
    ], Path.cwd()
