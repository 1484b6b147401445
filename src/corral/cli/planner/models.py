"""Reading of the file that a request names as its model, because the planner itself
reads no files."""

import json
from dataclasses import replace

# they answer for any word, Path is not so kind
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any, Final, TypeVar

from corral.cli.files import FileUnreadable, read_text

Request = TypeVar("Request", bound=Any)
HINT: Final = (
    "give the config.json of a model from Hugging Face, or a name that this command lists: "
    "corral plan catalog models"
)
PLACES: Final = ("/", "./", "../", "~/")  # what is typed so is a place, and no name


def with_config(request: Request) -> Request:
    """Return the request with its model replaced by the text of the config.json that it
    names; unchanged if it names no file.

    Raises: NotFound, FileUnreadable.
    """
    file = _find_config_file(request.model)
    if file is None:
        return request
    text = read_text(file, "a model's config", hint=HINT)
    _check_json_object(text, file)
    resolved_request: Request = replace(request, model=text)
    return resolved_request


def _find_config_file(said: str) -> Path | None:
    """Return the config.json that the text names; None if the text is a model name,
    such as meta-llama/Llama-3.1-8B, or dimensions, or the content of a config.json."""
    if said.lstrip().startswith("{") or "\n" in said:
        return None
    path = Path(said).expanduser()
    is_place = said.startswith(PLACES) or said in (".", "..")
    config = path / "config.json"
    if isdir(path) and (is_place or "/" in said and exists(config)):
        if not exists(config):
            raise FileUnreadable(f"{path} is a folder without a config.json", hint=HINT)
        return config
    return (
        path
        if is_place or said.endswith(".json") or "/" in said and isfile(path)
        else None
    )


def _check_json_object(text: str, file: Path) -> None:
    """Check that the text of the file is a JSON object. Raises: FileUnreadable, with
    the position of the error, if it is not."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        error_position = f"line {error.lineno}, column {error.colno}"
        raise FileUnreadable(
            f"{file} is not valid JSON: {error_position}: {error.msg}", hint=HINT
        ) from error
    except (ValueError, RecursionError) as error:
        raise FileUnreadable(
            f"{file} cannot be read as JSON: {error}", hint=HINT
        ) from error
    if not isinstance(config, dict):
        raise FileUnreadable(
            f"{file} is not a model's config: it is not a JSON object {{...}}",
            hint=HINT,
        )
