"""Reading of specs and workdirs in the forms that a caller may give.

The spec reader and pydantic are loaded when the first spec is given, because most
commands give none.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.client.active_environment import active_environment, with_active_environment
from corral.domain.errors import SpecInvalid
from corral.domain.store_url import is_store_url

if TYPE_CHECKING:
    from corral.wire.spec_reader import Parsed
    from corral.wire.yaml_document import Document

Spec = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSpecs:
    """Checked specs in the form in which they are sent. A relative path of a workdir or
    checkpoint is resolved against the folder of the spec's file, or without a file
    against the current directory. `~` is the home directory of the user who submits."""

    values: tuple[dict[str, Any], ...]
    # of each value's workdir; None when it needs no upload
    paths: tuple[Path | None, ...]
    # the moments by the clock that are named; since 1970
    begins: tuple[float, ...] = ()

    @property
    def workdirs(self) -> list[Path]:
        return list(dict.fromkeys(path for path in self.paths if path is not None))

    def with_workdirs(self, digests: Mapping[Path, str]) -> list[dict[str, Any]]:
        return [
            value if path is None else {**value, "workdir": digests[path]}
            for value, path in zip(self.values, self.paths, strict=True)
        ]

    def without_workdirs(self) -> list[dict[str, Any]]:
        return [
            value
            if path is None
            else {
                key: field_value
                for key, field_value in value.items()
                if key != "workdir"
            }
            for value, path in zip(self.values, self.paths, strict=True)
        ]


def read_wire_specs(spec: Spec) -> WireSpecs:
    """Read the specs and check everything that can be checked by the client, before
    anything is sent.

    Raises: SpecInvalid with file and line; with the field alone if there is one spec
    and no file.
    """
    from corral.wire import spec_reader
    from corral.wire.submission import to_domain
    from corral.wire.yaml_document import Document

    folder = Path.cwd()
    if isinstance(spec, str | Path):
        parsed = spec_reader.read_specs(Path(spec))
        folder = Path(spec).absolute().parent
    elif isinstance(spec, Mapping):
        parsed = [spec_reader.check(Document(value=dict(spec), source=""))]
    else:
        parsed = spec_reader.parse_values(list(spec), source="spec")
    if not parsed:
        raise SpecInvalid("the list of specs is empty", hint="give at least one spec")
    to_domain(parsed)
    active = active_environment()
    return WireSpecs(
        values=tuple(
            with_active_environment(_with_checkpoint(spec_document, folder), active)
            for spec_document in parsed
        ),
        paths=tuple(
            workdir_path(spec_document.document, spec_document.spec.workdir, folder)
            for spec_document in parsed
        ),
        begins=tuple(_begin_times(parsed)),
    )


def _begin_times(parsed: "Iterable[Parsed]") -> Iterator[float]:
    for spec_document in parsed:
        if (
            spec_document.spec.begin is not None
            and spec_document.spec.begin.at is not None
        ):
            yield spec_document.spec.begin.at


def _with_checkpoint(one: "Parsed", folder: Path) -> dict[str, Any]:
    """Return the spec as a document in which the checkpoint path is absolute, because
    nodes do not know the caller's directory. `folder` is where a relative path begins.
    """
    value = one.document.value
    if one.spec.checkpoint is None:
        return value
    rule_value = value["checkpoint"]
    if one.spec.checkpoint.path is None or is_store_url(one.spec.checkpoint.path):
        return value
    path = os.path.normpath(folder / Path(one.spec.checkpoint.path).expanduser())
    rule = rule_value if isinstance(rule_value, Mapping) else {}
    return {**value, "checkpoint": {**rule, "path": path}}


def workdir_path(
    document: "Document", wanted_dir: str | None, folder: Path
) -> Path | None:
    """Return the directory that the workdir of a document names; None if nothing has to
    be uploaded. `folder` is where a relative path begins.

    Raises: SpecInvalid.
    """
    from corral.wire.field_readers import is_digest
    from corral.wire.spec_reader import Problem, refusal

    if wanted_dir is None or is_digest(wanted_dir):
        return None
    path = (folder / Path(wanted_dir).expanduser()).resolve()
    if not path.is_dir():
        problem = Problem(
            where=("workdir",),
            text=f"{path} is not a directory",
            hint=f"run: ls -ld {path}",
        )
        raise refusal(document, [problem])
    return path
