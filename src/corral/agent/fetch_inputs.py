"""Inputs that the agent fetches from the head: an attempt's workdir, its secrets, and
the list of deleted jobs."""

import asyncio
import hashlib
import http.client
import io
import logging
import os
import re
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from corral.agent.head_addresses import HeadAddresses
from corral.agent.image.image_cache import USED, Images
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import ImageTrouble
from corral.agent.job_account import JobAccount
from corral.agent.unpack_workdir import (
    EXIT_UNSAFE,
    SMALL,
    WORKDIR,
    SnapshotTooLarge,
    SnapshotUnsafe,
    helper_words,
    unpack,
)
from corral.agent.user_accounts import AccountRefused, Accounts
from corral.domain.desired_state import Launch
from corral.domain.errors import (
    CorralError,
    InsecureHead,
    Refusal,
    Trouble,
    Unauthorised,
    WrongHead,
)
from corral.domain.ids import JobId
from corral.domain.kept_work import WorkLimits
from corral.domain.observed_state import AttemptKey
from corral.wire.proven_http import connection_to

SNAPSHOT: Final = "/v1/agents/snapshots/"
SECRETS: Final = "/v1/agents/secrets/"
POLICY: Final = "the node's policy"
OWNERS: Final = "/v1/agents/owners/"
OWN_TOKEN: Final = "CORRAL_TOKEN"  # the head makes it for the attempt
FORGOTTEN: Final = "/v1/agents/forgotten?jobs="
TRIES_SECONDS: Final = 60.0  # how long a head that is away is waited for
CACHE_BYTES: Final = 8 * 1024**3
THREADS: Final = 8
# of one user are prepared at once: the others' find a free thread
USER_STARTS: Final = 2
IMAGE_THREADS: Final = 32  # each waits for the tools of one user's image
_TIMEOUT_SECONDS: Final = 30.0
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
T = TypeVar("T")
log = logging.getLogger(__name__)


class HeadRefuses(Refusal):
    """The head answered the request with a refusal."""

    code = "head_refuses"

    def __init__(self, message: str, *, its_code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.its_code = its_code


class HeadAway(Trouble):
    """The head did not answer, or answered with a server error."""

    code = "unreachable"


class NotStarted(Trouble):
    """Error: an attempt cannot be started on this node. `infra`: the cluster is at
    fault, not the job. `of`: what caused the failure, if not the node."""

    code = "not_started"

    def __init__(self, message: str, *, infra: bool, of: str = "") -> None:
        super().__init__(message)
        self.infra = infra
        self.of = of


class SecretsAnswer(msgspec.Struct, frozen=True):
    secrets: dict[str, str]


class OwnerAnswer(msgspec.Struct, frozen=True):
    number: int


class ForgottenAnswer(msgspec.Struct, frozen=True):
    """The head's answer with the jobs that it has deleted. `work` has the limits for
    kept work folders; it is None from a head of an older version."""

    forgotten: list[JobId]
    work: WorkLimits | None = None


class _Said(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: _Said


@dataclass(slots=True, kw_only=True)
class Prepare:
    """Fetches the inputs of attempts from the head, with the node's token and in
    threads. A snapshot that several attempts need is fetched once.

    Each user has a share of the threads, regardless of the sizes of the user's workdirs
    and images.
    """

    node_dir: Path
    heads: HeadAddresses
    token: str
    images: Images
    accounts: Accounts
    shared: tuple[str, ...] = ()
    trusted: ssl.SSLContext | None = None
    tries_seconds: float = TRIES_SECONDS
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(
            THREADS, thread_name_prefix="prepare"
        )
    )
    _image_threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(
            IMAGE_THREADS, thread_name_prefix="image"
        )
    )
    _shares: dict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(USER_STARTS))
    )
    _image_shares: dict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(1))
    )
    _fetching: dict[str, asyncio.Task[Path]] = field(default_factory=dict)

    async def work(self, launch: Launch) -> Path:
        """Create and fill the attempt's working directory, and return it.

        Raises: NotStarted when this fails.
        """
        job, attempt = launch.key
        into = self.node_dir / "attempts" / f"{job}.{attempt}" / "work"
        if launch.workdir is None:
            into.mkdir(parents=True, exist_ok=True)
            return into
        try:
            async with self._shares[launch.owner]:
                archive = await self._cached_snapshot(launch.workdir)
                await self._unpack_archive(archive, into)
        except SnapshotUnsafe as wrong:
            raise NotStarted(
                f"the workdir cannot be unpacked: {wrong}", infra=False
            ) from wrong
        except (CorralError, OSError) as trouble:
            raise NotStarted(
                f"the workdir cannot be fetched or unpacked: {trouble}", infra=True
            ) from trouble
        return into

    async def account(self, launch: Launch) -> JobAccount | None:
        """Return the account for the attempt's ranks; None for the agent's account.

        Raises: NotStarted when the account is refused or cannot be found out.
        """
        try:
            return await self.accounts.of(launch, self._number)
        except AccountRefused as refused:
            message = f"{refused.message}; {refused.hint}"
            raise NotStarted(message, infra=True, of=POLICY) from refused
        except (CorralError, OSError) as trouble:
            reason = f"the account for the job's ranks cannot be determined: {trouble}"
            raise NotStarted(reason, infra=True) from trouble

    async def secrets(self, launch: Launch) -> Mapping[str, str]:
        """Return the values of the job's secrets by name.

        Raises: NotStarted when they cannot be fetched.
        """
        if not launch.secrets:
            return {}
        job, attempt = launch.key
        try:
            text = await self._patiently(
                lambda: self.fetch_bytes(f"{SECRETS}{job}/{attempt}")
            )
            values = msgspec.json.decode(text, type=SecretsAnswer).secrets
        except HeadRefuses as no:
            raise NotStarted(
                f"the head refused the job's secrets: {no}",
                infra=no.its_code != "not_found",
            ) from no
        except (HeadAway, ValueError) as trouble:
            raise NotStarted(
                f"the job's secrets cannot be fetched: {trouble}", infra=True
            ) from trouble
        missing = [name for name in launch.secrets if name not in values]
        if missing:
            names = ", ".join(missing)
            raise NotStarted(f"the head has no secret named {names}", infra=False)
        secret_values = {name: values[name] for name in launch.secrets}
        if OWN_TOKEN in secret_values:  # and where it may be shown
            secret_values["CORRAL_URL"] = self.heads.url()
        return secret_values

    async def image(
        self, launch: Launch, account: JobAccount | None
    ) -> ImageRoot | None:
        """Return the root file system of the ranks; None for that of the node.

        Raises: NotStarted when the image is not available.
        """
        if launch.image is None:
            return None
        attempt = self.node_dir / "attempts" / f"{launch.key[0]}.{launch.key[1]}"
        gpu = bool(launch.seat.gpus)
        name, work = launch.image, str(attempt / "work")

        def ready() -> ImageRoot:
            policy = self.accounts.policy()
            shared_paths = (
                path for path in self.shared if not policy.refuses_path(path)
            )
            visible_paths = (str(attempt), *shared_paths)
            return self.images.ready(
                name,
                seen=visible_paths,
                work=work,
                gpu=gpu,
                user=attempt / USED,
                account=account,
            )

        try:
            async with self._image_shares[launch.owner]:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._image_threads, ready)
        except ImageTrouble as trouble:
            raise NotStarted(f"{trouble}", infra=trouble.infra) from trouble
        except (CorralError, OSError) as trouble:
            raise NotStarted(
                f"the image cannot be stored on this node: {trouble}", infra=True
            ) from trouble

    async def forgotten(self, jobs: Sequence[JobId]) -> ForgottenAnswer:
        """Ask the head which of the jobs it has deleted.

        Raises: HeadRefuses, HeadAway, ValueError when there is no valid answer.
        """
        text = await self._in_thread(
            lambda: self.fetch_bytes(f"{FORGOTTEN}{','.join(jobs)}")
        )
        return msgspec.json.decode(text, type=ForgottenAnswer)

    def close(self) -> None:
        for threads in (self._threads, self._image_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _unpack_archive(self, archive: Path, into: Path) -> None:
        """Unpack a small archive in this process, and a large one in a helper of low
        priority.

        An unsafe archive is removed from the cache, because it may be damaged; the next
        attempt fetches it again.

        Raises: SnapshotUnsafe, OSError when it cannot be unpacked.
        """
        try:
            try:
                await self._in_thread(lambda: unpack(archive, into, SMALL))
            except SnapshotTooLarge:
                await _unpack_in_helper(archive, into)
        except SnapshotUnsafe:
            archive.unlink(missing_ok=True)
            raise

    async def _number(self, key: AttemptKey) -> int:
        """Return the number by which the cluster identifies the user who owns the
        attempt.

        Raises: HeadRefuses, HeadAway when the head does not give the number.
        """
        job, attempt = key
        text = await self._patiently(
            lambda: self.fetch_bytes(f"{OWNERS}{job}/{attempt}")
        )
        try:
            return msgspec.json.decode(text, type=OwnerAnswer).number
        except ValueError as wrong:
            raise HeadAway(f"the head's answer is not valid: {wrong}") from wrong

    async def _cached_snapshot(self, digest: str) -> Path:
        """Return the path of the snapshot's archive in the node's cache; fetch it first
        if it is missing. Callers that need the same snapshot wait for one fetch, which
        continues if one of them is cancelled."""
        if digest not in self._fetching:
            task = asyncio.create_task(
                self._patiently(lambda: self._fetch_snapshot(digest))
            )
            self._fetching[digest] = task
            task.add_done_callback(lambda _: self._fetching.pop(digest, None))
        return await asyncio.shield(self._fetching[digest])

    async def _patiently(self, fetch: Callable[[], T]) -> T:
        """Call `fetch` and return its result. While the head does not answer, the call
        is repeated for a limited time.

        Raises: HeadAway when the time for retries is over.
        """
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

    def _fetch_snapshot(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise HeadRefuses(
                f"the workdir's digest {digest!r} is not valid", its_code="spec_invalid"
            )
        path = self.node_dir / "cache" / f"{digest}.tar.gz"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _make_room(path.parent)
            partial_path = path.with_suffix(f".{os.getpid()}")
            try:
                with partial_path.open("wb") as target:
                    snapshot_path = self._download_body(f"{SNAPSHOT}{digest}", target)
                    os.fsync(target.fileno())
                if snapshot_path != digest:
                    raise HeadAway(
                        f"the snapshot {digest[:12]} was damaged in transfer"
                    )
                partial_path.rename(path)
            finally:
                partial_path.unlink(missing_ok=True)
        os.utime(path)  # the least used ones go first
        return path

    def post(self, path: str, body: bytes) -> bytes:
        """Send a request to the head and return the body of its answer.

        Raises: HeadRefuses, HeadAway when the head does not accept it.
        """
        response_buffer = io.BytesIO()
        self._download_body(path, response_buffer, body)
        return response_buffer.getvalue()

    def fetch_bytes(self, path: str) -> bytes:
        """Return the body of the head's answer to GET.

        Raises: HeadRefuses, HeadAway when there is none.
        """
        response_buffer = io.BytesIO()
        self._download_body(path, response_buffer)
        return response_buffer.getvalue()

    def _download_body(
        self, path: str, target: BinaryIO, body: bytes | None = None
    ) -> str:
        """Write the body of the head's answer to `target`, and return its SHA-256.

        Raises: HeadRefuses, HeadAway when the head does not send it.
        """
        try:
            token = self.token
            connection = connection_to(
                self.heads.url(), token, timeout=_TIMEOUT_SECONDS, trusted=self.trusted
            )
            with closing(connection):
                headers = {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                }
                connection.request(
                    "GET" if body is None else "POST", path, body, headers
                )
                answer = connection.getresponse()
                if answer.status != 200:
                    raise _refusal_error(path, answer.status, answer.read(65536))
                digest = hashlib.sha256()
                while chunk := answer.read(1024 * 1024):
                    digest.update(chunk)
                    target.write(chunk)
                return digest.hexdigest()
        except (
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
            ValueError,
        ) as away:
            raise HeadAway(f"{type(away).__name__}: {away}") from away
        except FileNotFoundError as away:
            raise HeadAway(
                f"the head's address is not known: {self.heads.head_file} is missing"
            ) from away
        except (WrongHead, Unauthorised, InsecureHead) as unproven:
            raise HeadAway(unproven.message) from unproven


async def _unpack_in_helper(archive: Path, into: Path) -> None:
    """Unpack an archive in a helper process.

    Raises: SnapshotUnsafe, OSError when this fails.
    """
    helper = await asyncio.create_subprocess_exec(
        *helper_words(archive, into),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WORKDIR.seconds + _TIMEOUT_SECONDS):
            _, stderr = await helper.communicate()
    except TimeoutError:
        raise SnapshotUnsafe(f"unpacking takes over {WORKDIR.seconds:g} s") from None
    finally:
        if helper.returncode is None:
            helper.kill()
            await helper.wait()
    failure_reason = (
        stderr.decode(errors="replace").strip()
        or f"the unpack process ended with exit code {helper.returncode}"
    )
    if helper.returncode == EXIT_UNSAFE:
        raise SnapshotUnsafe(failure_reason)
    if helper.returncode != 0:
        raise OSError(failure_reason)


def _refusal_error(path: str, status: int, body: bytes) -> CorralError:
    """Return the error for a failed request: HeadRefuses for a refusal by the head, or
    HeadAway for a server error or HTTP 429, after which the request can be repeated."""
    try:
        refusal = msgspec.json.decode(body, type=_ErrorAnswer).error
    except ValueError:
        refusal = _Said()
    error_text = refusal.message or f"the head answered HTTP {status} for {path}"
    if status >= 500 or status == 429:
        return HeadAway(error_text)
    return HeadRefuses(error_text, its_code=refusal.code)


def _make_room(cache: Path) -> None:
    """Keep the cache below its maximum size by removing the least recently used
    snapshots."""
    paths = sorted(cache.glob("*.tar.gz"), key=lambda file: file.stat().st_mtime)
    size_bytes = sum(file.stat().st_size for file in paths)
    for file in paths:
        if size_bytes <= CACHE_BYTES:
            return
        size_bytes -= file.stat().st_size
        file.unlink()
