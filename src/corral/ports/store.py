"""Durable memory. What a method has returned from has survived a power cut."""

from collections.abc import Sequence as Seq
from collections.abc import Set
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from corral.domain.attempt import Attempt, Save
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.imported import Imported
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.job_summary import ListedJob
from corral.domain.leader_election import HeadSeen, Leader
from corral.domain.ledger import UsageRecord
from corral.domain.quota import UserHoldings
from corral.domain.receipt import Receipt
from corral.domain.requests import Asked, StoredRequest
from corral.domain.run_history import Ran, StartForecastTold
from corral.domain.users import THE_HEAD, AuditEntry, Speaker
from corral.domain.world import Changes, Event, World
from corral.ports.user_store import UserStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Filter of a job listing; what is left out holds for all. `text`: a part of the
    name, in any case, or the whole id of a job, of its array or its submission.
    `since`: a moment of the wall clock; jobs that ended before it are left out."""

    states: frozenset[JobState] = frozenset()
    owner: UserName | None = None
    queue: QueueName | None = None
    text: str = ""
    since: float | None = None

    def takes(self, job: Job) -> bool:
        """Whether it is one of them."""
        text = self.text.lower()
        return (
            (not self.states or job.state in self.states)
            and self.owner in (None, job.owner)
            and self.queue in (None, job.spec.queue)
            and (self.since is None or (job.ended_at or inf) >= self.since)
            and (
                text in job.spec.name.lower()
                or job.id == text
                or job.id.startswith(f"{text}_")
            )
        )


ALL: Final = Which()


class Store(UserStore, Protocol):
    """One contract, kept by SQLite, PostgreSQL and memory (tests/contracts/stores).

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def lead(self, *, known: int | None = None) -> World:
        """Raise the term and load the world under it. A fresh store gets a cluster id.

        `known` is the term that the caller led under: it leads again only while no
        newer one does. None: it takes over. Raises: TermLost.
        """
        ...

    async def keep_leading(self, term: int, *, name: str, url: str) -> None:
        """Say that the head of this term lives, and where it serves: it is one of
        `heads` too.

        Raises: TermLost.
        """
        ...

    async def step_down(self, term: int) -> None:
        """Let another lead at once, unless one does already."""
        ...

    async def leader(self) -> Leader: ...

    async def be_there(self, *, name: str, url: str) -> None:
        """Say that a head which does not lead lives, and where it serves."""
        ...

    async def leave(self, *, name: str) -> None:
        """Remove the head of this name from `heads`."""
        ...

    async def heads(self) -> Seq[HeadSeen]:
        """Return the heads that have registered, by name, alive or not."""
        ...

    async def agree(self, what: str, said: str) -> str:
        """Set a cluster-wide value once: the first writer wins. Return the winning
        value."""
        ...

    async def agreed(self, what: str) -> str | None:
        """Return the cluster-wide value; None if it was not set."""
        ...

    async def change_agreed(
        self,
        what: str,
        *,
        was: str | None,
        now: str | None,
        entry: AuditEntry | None = None,
    ) -> bool:
        """Replace what is agreed (None: nothing) if it still is `was`, with the line of
        it in the audit log. Whether it was."""
        ...

    async def add_request(
        self, asked: Asked, *, by: UserName, at: float, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        """Append a request, and its line of the audit log, durably.

        If this user has used the key of a Submit before, return the first request, and
        append nothing. An empty key counts as no key.
        """
        ...

    async def request_of_key(self, key: str, *, by: UserName) -> StoredRequest | None:
        """The Submit that this user has sent with this key, while it is remembered."""
        ...

    async def requests_after(self, after: int) -> Seq[StoredRequest]:
        """Requests with a sequence above `after`, in order. Granted ones may be gone."""
        ...

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        """Write all of the changes or nothing, and answer with the events, numbered.

        Rows replace those of the same key: jobs and nodes by id, attempts by (job,
        number), allocations by (job, attempt, node), saves by (job, attempt, step),
        receipts by (job, attempt, kind). Accounts are added to those recorded, and to
        the sums of their days, which outlive jobs. What is forgotten goes with all that
        belongs to it, but for the key of its submission. After StoreTrouble it may or
        may not have been written: lead again.

        Raises: TermLost when a newer term leads; InvariantBroken when a final state
        would change, a row belongs to no recorded job, a job is forgotten that is not
        over or holds something, or requests would be granted backwards or unseen.
        """
        ...

    async def jobs(
        self,
        *,
        final: bool,
        limit: int,
        before: JobId | None = None,
        which: Which = ALL,
    ) -> Seq[ListedJob]:
        """Return these jobs, newest first; with `final`, also ended ones. With `before`
        those that follow this one; if it is no longer recorded, those of older
        submissions."""
        ...

    async def job(self, id: JobId) -> Job | None: ...

    async def named(self, name: str, *, by: UserName | None = None) -> Job | None:
        """The newest job of that name, of anybody's or of this user's."""
        ...

    async def array(self, of: str, *, by: UserName | None = None) -> Seq[Job]:
        """Jobs of the array with this id, else of the newest array of this name (of
        this user's with `by`), by index."""
        ...

    async def names(self) -> Seq[str]:
        """Names of the newest 1,000 jobs, for suggestions."""
        ...

    async def workdirs(self) -> Set[str]:
        """Digests of the snapshots that recorded jobs run in, over or not."""
        ...

    async def attempts(self, job: JobId) -> Seq[Attempt]:
        """Attempts of the job by number."""
        ...

    async def receipts(self, job: JobId) -> Seq[Receipt]:
        """Receipts of the job, first written first."""
        ...

    async def accounts(
        self, *, first: int, last: int, job: JobId | None = None
    ) -> list[UsageRecord]:
        """Return the usage of recorded jobs on these days (since 1970, UTC), or of this
        one alone. The list belongs to the caller."""
        ...

    async def days(self, *, first: int, last: int) -> list[UsageRecord]:
        """The sums of these days by queue, user and type of GPU, of forgotten jobs too.
        The list is the caller's."""
        ...

    async def saves(self, job: JobId) -> Seq[Save]:
        """Saves of the job by step, the quarantined ones too."""
        ...

    async def events(
        self,
        *,
        after: int,
        job: JobId | None,
        limit: int,
        node: NodeId | None = None,
        newest: bool = False,
    ) -> Seq[Event]:
        """Events with a number above `after`, of a job, of a node, oldest first; where
        there are more than the limit the first ones, or the `newest`."""
        ...

    async def runs(self, *, limit: int) -> Seq[Ran]:
        """Return the run times of the newest ended jobs, newest first, up to `limit`,
        without those that never ran. If there are fewer, imported ones follow."""
        ...

    async def keep_imported(self, rows: Seq[Imported], *, entry: AuditEntry) -> int:
        """Keep those whose id is not known yet; how many these were."""
        ...

    async def known_imports(self, ids: Seq[str]) -> int:
        """Return how many of these were imported already."""
        ...

    async def imported(self, *, limit: int, before: str | None = None) -> Seq[Imported]:
        """The last to end first; with `before` those that follow the one of this id."""
        ...

    async def tell(
        self, rows: Seq[StartForecastTold], *, void: Seq[JobId] = ()
    ) -> None:
        """Record forecasts for waiting jobs, or their outcomes.

        Each job has one row, the newest. Rows of jobs that are no longer recorded are
        skipped; those of `void` are removed.
        """
        ...

    async def told(self, *, limit: int) -> Seq[StartForecastTold]:
        """The newest of those rows, oldest first. A job that is forgotten takes its row
        along."""
        ...

    async def holdings(self, owner: UserName) -> UserHoldings:
        """Return what is stored for this user, except jobs and logs."""
        ...

    async def add_upload(
        self,
        sha256: str,
        size_bytes: int,
        *,
        by: UserName,
        at: float,
        entry: AuditEntry,
    ) -> None:
        """Count the snapshot for this user, unless it already counts for another
        user."""
        ...

    async def drop_uploads(self, digests: Seq[str]) -> None:
        """Remove these snapshots, so that they count against no quota."""
        ...

    async def put_secret(
        self,
        name: str,
        sealed: bytes,
        *,
        by: UserName,
        at: float,
        for_everybody: bool | None = None,
        entry: AuditEntry | None = None,
    ) -> None:
        """Keep it instead of the one of this name. `for_everybody`: it serves the jobs
        of all users; None: as the one before it, or its owner's alone."""
        ...

    async def secret(self, name: str) -> bytes | None: ...

    async def secrets(self) -> Seq[tuple[str, UserName, float]]:
        """(name, set by, when) of each secret; never a value."""
        ...

    async def secrets_for_everybody(self) -> Set[str]:
        """Names of those that serve the jobs of all users."""
        ...

    async def seal_anew(self, name: str, *, was: bytes, now: bytes) -> bool:
        """Replace a sealed value if it still is `was`. Whether it was."""
        ...

    async def drop_secret(
        self, name: str, *, entry: AuditEntry | None = None
    ) -> bool: ...

    async def close(self) -> None: ...
