"""What is fetched from the head: an attempt's workdir as submitted, its secrets; what may go."""

import asyncio
import hashlib
import http.client
import io
import logging
import os
import re
import ssl
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from corral.agent.heads import Heads
from corral.agent.image.keep import USED, Images
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import ImageTrouble
from corral.agent.unpack import unpack
from corral.domain.errors import CorralError, Refusal, Trouble
from corral.domain.ids import JobId
from corral.domain.wanted import Launch

SNAPSHOT: Final = "/v1/agents/snapshots/"
SECRETS: Final = "/v1/agents/secrets/"
OWN_TOKEN: Final = "CORRAL_TOKEN"  # the head makes it for the attempt
FORGOTTEN: Final = "/v1/agents/forgotten?jobs="
TRIES_SECONDS: Final = 60.0  # how long a head that is away is waited for
CACHE_BYTES: Final = 8 * 1024**3
_TIMEOUT_SECONDS: Final = 30.0
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
T = TypeVar("T")
log = logging.getLogger(__name__)


class HeadRefuses(Refusal):
    """The head answered, and the answer is no."""

    code = "head_refuses"

    def __init__(self, message: str, *, its_code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.its_code = its_code


class HeadAway(Trouble):
    """The head did not answer, or not as one that is well."""

    code = "unreachable"


class NotStarted(Trouble):
    """An attempt cannot be started here. `infra`: the cluster's fault, not the job's."""

    code = "not_started"

    def __init__(self, message: str, *, infra: bool) -> None:
        super().__init__(message)
        self.infra = infra


class SecretsAnswer(msgspec.Struct, frozen=True):
    secrets: dict[str, str]


class ForgottenAnswer(msgspec.Struct, frozen=True):
    forgotten: list[JobId]


class _Said(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: _Said


@dataclass(slots=True, kw_only=True)
class Prepare:
    """Fetches with the node's token, in threads, a snapshot once however many ask for it."""

    node_dir: Path
    heads: Heads
    token: str
    images: Images
    shared: tuple[str, ...] = ()
    trusted: ssl.SSLContext | None = None
    tries_seconds: float = TRIES_SECONDS
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(4, thread_name_prefix="prepare")
    )
    _fetching: dict[str, asyncio.Task[Path]] = field(default_factory=dict)

    async def work(self, launch: Launch) -> Path:
        """The attempt's current directory, filled. Raises: NotStarted."""
        job, attempt = launch.key
        into = self.node_dir / "attempts" / f"{job}.{attempt}" / "work"
        if launch.workdir is None:
            into.mkdir(parents=True, exist_ok=True)
            return into
        try:
            archive = await self._snapshot(launch.workdir)
            await self._in_thread(lambda: _unpack_or_forget(archive, into))
        except (CorralError, OSError, tarfile.TarError, EOFError, zlib.error) as trouble:
            raise NotStarted(f"the workdir cannot be had: {trouble}", infra=True) from trouble
        return into

    async def secrets(self, launch: Launch) -> Mapping[str, str]:
        """The values of the job's secrets by name. Raises: NotStarted."""
        if not launch.secrets:
            return {}
        job, attempt = launch.key
        try:
            text = await self._patiently(lambda: self._get(f"{SECRETS}{job}/{attempt}"))
            values = msgspec.json.decode(text, type=SecretsAnswer).secrets
        except HeadRefuses as no:
            raise NotStarted(f"its secrets: {no}", infra=no.its_code != "not_found") from no
        except (HeadAway, ValueError) as trouble:
            raise NotStarted(f"its secrets cannot be had: {trouble}", infra=True) from trouble
        missing = [name for name in launch.secrets if name not in values]
        if missing:
            raise NotStarted(f"there is no secret {', '.join(missing)}", infra=False)
        found = {name: values[name] for name in launch.secrets}
        if OWN_TOKEN in found:  # and where it may be shown
            found["CORRAL_URL"] = self.heads.url()
        return found

    async def image(self, launch: Launch) -> ImageRoot | None:
        """What its ranks run in; None: the node as it is. Raises: NotStarted."""
        if launch.image is None:
            return None
        attempt = self.node_dir / "attempts" / f"{launch.key[0]}.{launch.key[1]}"
        seen = (str(attempt), *self.shared)
        gpu = bool(launch.seat.gpus)
        name, work = launch.image, str(attempt / "work")
        try:
            return await asyncio.to_thread(
                self.images.ready, name, seen=seen, work=work, gpu=gpu, user=attempt / USED
            )
        except ImageTrouble as trouble:
            raise NotStarted(f"{trouble}", infra=trouble.infra) from trouble
        except OSError as trouble:
            raise NotStarted(f"the image cannot be kept: {trouble}", infra=True) from trouble

    async def forgotten(self, jobs: Sequence[JobId]) -> Sequence[JobId]:
        """Those of them that the head has forgotten. Raises: HeadRefuses, HeadAway, ValueError."""
        text = await self._in_thread(lambda: self._get(f"{FORGOTTEN}{','.join(jobs)}"))
        return msgspec.json.decode(text, type=ForgottenAnswer).forgotten

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _snapshot(self, digest: str) -> Path:
        """The archive in the node's cache. One that waits for another's fetch may be cancelled."""
        if digest not in self._fetching:
            task = asyncio.create_task(self._patiently(lambda: self._fetch(digest)))
            self._fetching[digest] = task
            task.add_done_callback(lambda _: self._fetching.pop(digest, None))
        return await asyncio.shield(self._fetching[digest])

    async def _patiently(self, fetch: Callable[[], T]) -> T:
        """Try again while the head is away, in case it comes back. Raises: HeadAway at the end."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.tries_seconds
        delay_seconds = 0.05
        while True:
            try:
                return await self._in_thread(fetch)
            except HeadAway:
                if clock() + delay_seconds > deadline:
                    raise
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(delay_seconds * 2, 1.0)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _fetch(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise HeadRefuses(f"{digest!r} is no digest", its_code="spec_invalid")
        kept = self.node_dir / "cache" / f"{digest}.tar.gz"
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            _make_room(kept.parent)
            fresh = kept.with_suffix(f".{os.getpid()}")
            try:
                with fresh.open("wb") as target:
                    found = self._download(f"{SNAPSHOT}{digest}", target)
                    os.fsync(target.fileno())
                if found != digest:
                    raise HeadAway(f"the snapshot {digest[:12]} came damaged")
                fresh.rename(kept)
            finally:
                fresh.unlink(missing_ok=True)
        os.utime(kept)  # the least used ones go first
        return kept

    def _get(self, path: str) -> bytes:
        whole = io.BytesIO()
        self._download(path, whole)
        return whole.getvalue()

    def _download(self, path: str, target: BinaryIO) -> str:
        """Write the answer's body; its SHA-256. Raises: HeadRefuses, HeadAway."""
        try:
            connection = _connect(self.heads.url(), self.trusted)
            with closing(connection):
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                answer = connection.getresponse()
                if answer.status != 200:
                    raise _refused(path, answer.status, answer.read(65536))
                digest = hashlib.sha256()
                while chunk := answer.read(1024 * 1024):
                    digest.update(chunk)
                    target.write(chunk)
                return digest.hexdigest()
        except (http.client.HTTPException, ConnectionError, TimeoutError, ValueError) as away:
            raise HeadAway(f"{type(away).__name__}: {away}") from away
        except FileNotFoundError as away:
            raise HeadAway(f"no head has written {self.heads.head_file}") from away


def _unpack_or_forget(archive: Path, into: Path) -> None:
    """Unpack; a cached archive that cannot be read is fetched anew by the next attempt."""
    try:
        unpack(archive, into)
    except (tarfile.TarError, EOFError, zlib.error):
        archive.unlink(missing_ok=True)
        raise


def _connect(url: str, trusted: ssl.SSLContext | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            host, parts.port, timeout=_TIMEOUT_SECONDS, context=trusted
        )
    return http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)


def _refused(path: str, status: int, body: bytes) -> CorralError:
    """The head's no, or a head that is not well and worth another try."""
    try:
        said = msgspec.json.decode(body, type=_ErrorAnswer).error
    except ValueError:
        said = _Said()
    words = said.message or f"HTTP {status} for {path}"
    if status >= 500 or status == 429:
        return HeadAway(words)
    return HeadRefuses(words, its_code=said.code)


def _make_room(cache: Path) -> None:
    """Keep the cache under its size: the least lately used snapshots go."""
    kept = sorted(cache.glob("*.tar.gz"), key=lambda file: file.stat().st_mtime)
    size_bytes = sum(file.stat().st_size for file in kept)
    for file in kept:
        if size_bytes <= CACHE_BYTES:
            return
        size_bytes -= file.stat().st_size
        file.unlink()
