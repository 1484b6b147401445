"""Uploads and storage of each user, in the store in memory."""

from collections.abc import Sequence as Seq

from corral.domain.ids import JobId, UserName
from corral.domain.job import Job
from corral.domain.quota import UserHoldings
from corral.domain.spec_content import content_of, is_large
from corral.domain.users import AuditEntry, Removed
from corral.store.memory_batches import MemoryBatches
from corral.store.memory_users import MemoryPeople
from corral.store.row_codec import CONTENT


class MemoryUses(MemoryPeople, MemoryBatches):
    """Base class of the store in memory: uploads and the storage that each user
    occupies."""

    _jobs: dict[JobId, Job]

    def __init__(self) -> None:
        super().__init__()
        MemoryBatches.__init__(self)
        self._uploads: dict[str, tuple[int, UserName]] = {}

    async def remove_user(
        self, name: UserName, *, at: float, entry: AuditEntry
    ) -> Removed | None:
        removed = await super().remove_user(name, at=at, entry=entry)
        if removed is not None:
            self._drop_owner(name)
        return removed

    async def holdings(self, owner: UserName) -> UserHoldings:
        jobs = (job for job in self._jobs.values() if job.owner == owner)
        contents = {
            (job.submitted, content_of(job.spec)) for job in jobs if is_large(job.spec)
        }
        sealed = [
            secret.sealed for secret in self._secrets.values() if secret.by == owner
        ]
        sizes = [size for size, uploader in self._uploads.values() if uploader == owner]
        sizes += [
            file.size_bytes for file in self._files.values() if file.owner == owner
        ]
        return UserHoldings(
            spec_bytes=sum(
                len(CONTENT.write(spec_content)[0].encode())
                for _, spec_content in contents
            ),
            upload_bytes=sum(sizes),
            secrets=len(sealed),
            secret_bytes=sum(map(len, sealed)),
        )

    async def add_upload(
        self,
        sha256: str,
        size_bytes: int,
        *,
        by: UserName,
        at: float,
        entry: AuditEntry,
    ) -> None:
        if sha256 not in self._uploads:
            self._uploads[sha256] = (size_bytes, by)
            self._add_entry(entry)

    async def drop_uploads(self, digests: Seq[str]) -> None:
        for digest in digests:
            self._uploads.pop(digest, None)
