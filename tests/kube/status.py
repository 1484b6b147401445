"""Refusals of the API server, each a Status object as Kubernetes writes it."""

from collections.abc import Sequence

from tests.kube.kinds import Json, Kind


class Refused(Exception):
    """Answered with its code.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/"""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def body(self) -> Json:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def _of(kind: Kind, name: str) -> Json:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> Refused:
    return Refused(
        404, "NotFound", f'{kind.qualified} "{name}" not found', _of(kind, name)
    )


def already_exists(kind: Kind, name: str) -> Refused:
    message = f'{kind.qualified} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, _of(kind, name))


def conflict(kind: Kind, name: str, why: str = "") -> Refused:
    said = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {said}'
    return Refused(409, "Conflict", message, _of(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[tuple[str, str]]) -> Refused:
    """`causes`: (field, what is wrong with it)."""
    said = ", ".join(f"{field}: {wrong}" for field, wrong in causes)
    said = said if len(causes) == 1 else f"[{said}]"
    message = f'{kind.kind}.{kind.group} "{name}" is invalid: {said}'.replace(
        ". ", " ", 1
    )
    listed = [
        {"reason": "FieldValueInvalid", "field": field, "message": wrong}
        for field, wrong in causes
    ]
    details = {**_of(kind, name), "kind": kind.kind, "causes": listed}
    return Refused(422, "Invalid", message, details)


def forbidden(kind: Kind, name: str, why: str) -> Refused:
    message = f'{kind.qualified} "{name}" is forbidden: {why}'
    return Refused(403, "Forbidden", message, _of(kind, name))


def bad_request(message: str) -> Refused:
    return Refused(400, "BadRequest", message)


def expired(message: str) -> Refused:
    """The version that was asked for is not kept any more: list again."""
    return Refused(410, "Expired", message)
