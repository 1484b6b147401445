"""Repositories of Hugging Face, by its HTTP API."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import quote, urlsplit

from corral.agent.content_cache.http_reading import bearer, read_from, read_json
from corral.agent.content_cache.manifest import ListedFile, Listing, check_paths
from corral.agent.content_cache.refusals import ContentRefused, ContentTrouble
from corral.agent.content_cache.source import ByteStream

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
ENDPOINT: Final = "HF_ENDPOINT"
TOKEN: Final = "HF_TOKEN"
MAIN: Final = "main"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)


class HfSource:
    """One revision of a repository of models. `env` gives HF_ENDPOINT and HF_TOKEN."""

    def __init__(self, repository: str, revision: str, env: Mapping[str, str]) -> None:
        self._repository = repository
        self._revision = revision or MAIN
        self._endpoint = (env.get(ENDPOINT) or DEFAULT_ENDPOINT).rstrip("/")
        if urlsplit(self._endpoint).scheme not in ("http", "https"):
            raise ContentRefused(f"{ENDPOINT} is not an HTTP address")
        self._token = env.get(TOKEN, "")
        self._commit = ""

    @property
    def _name(self) -> str:
        return f"hf://{self._repository}@{self._revision}"

    @property
    def origin(self) -> str:
        return self._endpoint

    def listing(self) -> Listing:
        """Return the files of the revision. A pinned commit must be the answered one.

        Raises: ContentRefused, ContentTrouble.
        """
        revision = quote(self._revision, safe="")
        path = f"/api/models/{quote(self._repository)}/revision/{revision}?blobs=true"
        answer = read_json(self._endpoint + path, bearer(self._token), self._name)
        try:
            commit = str(answer["sha"])
            files = tuple(_listed_file(entry) for entry in answer["siblings"])
            is_public = not (answer.get("private") or answer.get("gated"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ContentTrouble(
                f"{self._endpoint} does not list the files of {self._name}: {error!r}"
            ) from error
        if not _COMMIT.fullmatch(commit):
            raise ContentTrouble(f"{self._endpoint} gives no commit for {self._name}")
        if _COMMIT.fullmatch(self._revision) and commit != self._revision:
            raise ContentRefused(
                f"{self._endpoint} has commit {commit[:12]} for {self._name}, not the "
                "pinned one"
            )
        check_paths(files, self._name)
        self._commit = commit
        name = f"hf://{self._repository}@{commit}"
        return Listing(origin=self.origin, name=name, files=files, is_public=is_public)

    def size_of(self, file: ListedFile) -> int | None:
        return file.size

    def read(self, file: ListedFile, offset: int) -> AbstractContextManager[ByteStream]:
        """Open a file of the listed commit. Raises: ContentRefused, ContentTrouble."""
        path = f"/{quote(self._repository)}/resolve/{self._commit}/{quote(file.path)}"
        name = f"{file.path} of {self._name}"
        return read_from(self._endpoint + path, bearer(self._token), offset, name)


def _listed_file(entry: Mapping[str, Any]) -> ListedFile:
    """Return a file of the API's answer. Large files have a SHA-256, and the others the
    hash of a blob of Git."""
    lfs = entry.get("lfs") or {}
    size = lfs.get("size", entry.get("size"))
    return ListedFile(
        path=str(entry["rfilename"]),
        size=None if size is None else int(size),
        sha256=str(lfs.get("sha256") or ""),
        git_sha1="" if lfs else str(entry.get("blobId") or ""),
    )
