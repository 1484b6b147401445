"""A model that is named by a file is read here: the planner itself reads none."""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from corral.domain.errors import NotFound, Refusal

Request = TypeVar("Request", bound=Any)


class FileUnreadable(Refusal):
    """A file is there and cannot be read."""

    code = "file_unreadable"


def with_config(request: Request) -> Request:
    """The same request, with the text of the config.json that its model names.

    Raises: NotFound, FileUnreadable.
    """
    path = Path(request.model)
    is_named = request.model.endswith(".json") or "/" in request.model and path.is_dir()
    if not is_named or request.model.lstrip().startswith("{"):
        return request
    file = path / "config.json" if path.is_dir() else path
    try:
        made: Request = replace(request, model=file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound("file", str(file)) from error
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a model's config.json, or a name of: corral plan catalog models"
        raise FileUnreadable(f"{file} cannot be read: {error}", hint=hint) from error
    return made
