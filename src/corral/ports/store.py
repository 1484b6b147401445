"""Interface of durable storage. When a method has returned, its changes survive a power
cut."""

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
from corral.domain.service import Service
from corral.domain.users import THE_HEAD, AuditEntry, Speaker
from corral.domain.world import Changes, Event, World
from corral.ports.batch_store import BatchStore
from corral.ports.user_store import UserStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Filter of a job listing; a field that is not set matches all jobs. `text`: a part
    of the name, ignoring case, or the whole id of a job, of its array or its
    submission. `since`: a wall-clock time; jobs that ended before it are left out."""

    states: frozenset[JobState] = frozenset()
    owner: UserName | None = None
    queue: QueueName | None = None
    text: str = ""
    since: float | None = None

    def takes(self, job: Job) -> bool:
        """Return whether the job matches the filter."""
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


class Store(UserStore, BatchStore, Protocol):
    """The contract of all stores: SQLite, PostgreSQL and memory
    (tests/contracts/stores).

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def lead(self, *, known: int | None = None) -> World:
        """Begin a new, higher term and load the world under it. A new store gets a
        cluster id.

        `known` is the term under which the caller led before: the caller leads again
        only if there is no newer term. With None, the caller takes over. Raises:
        TermLost.
        """
        ...

    async def keep_leading(self, term: int, *, name: str, url: str) -> None:
        """Record that the head of this term is alive, and its address. `heads` then
        lists it too.

        Raises: TermLost.
        """
        ...

    async def step_down(self, term: int) -> None:
        """End this term, so that another head can lead at once; no effect if another
        head leads already."""
        ...

    async def leader(self) -> Leader: ...

    async def be_there(self, *, name: str, url: str) -> None:
        """Record that a standby head lives, and its address."""
        ...

    async def leave(self, *, name: str) -> None:
        """Remove the head of this name from `heads`."""
        ...

    async def heads(self) -> Seq[HeadSeen]:
        """Return the heads that have registered, by name, alive or not."""
        ...

    async def agree(self, what: str, said: str) -> str:
        """Set the cluster-wide value with the key `what`, unless it is set already.
        Return the value that is now set."""
        ...

    async def agreed(self, what: str) -> str | None:
        """Return the cluster-wide value with the key `what`; None if it was not set."""
        ...

    async def change_agreed(
        self,
        what: str,
        *,
        was: str | None,
        now: str | None,
        entry: AuditEntry | None = None,
    ) -> bool:
        """Replace the cluster-wide value with the key `what` by `now` (None: remove it)
        if it is still `was`, together with an entry in the audit log. Return whether it
        was replaced."""
        ...

    async def add_request(
        self, asked: Asked, *, by: UserName, at: float, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        """Append a request and its entry in the audit log durably, and return the
        stored request.

        If this user has used the key of a Submit before, return the first request, and
        append nothing. An empty key counts as no key.
        """
        ...

    async def request_of_key(self, key: str, *, by: UserName) -> StoredRequest | None:
        """Return the Submit request that this user has sent with this idempotency key;
        None if it is not remembered."""
        ...

    async def requests_after(self, after: int) -> Seq[StoredRequest]:
        """Return the requests with a sequence above `after`, in order. Granted requests
        may be missing."""
        ...

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        """Write all of the changes or none of them, and return the events with their
        numbers.

        A row replaces the row of the same key: jobs and nodes by id, attempts by (job,
        number), allocations by (job, attempt, node), saves by (job, attempt, step),
        receipts by (job, attempt, kind). Usage records are added to those recorded, and
        to the sums of their days, which are kept after jobs are forgotten. A forgotten
        job is removed with everything that belongs to it, except the key of its
        submission. After StoreTrouble, the changes may or may not have been written:
        the head must lead again.

        Raises: TermLost when a newer term leads; InvariantBroken when a final state
        would change, a row belongs to no recorded job, a job is forgotten that has not
        ended or holds something, or requests would be granted in the wrong order or
        without being known.
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
        """Return the unfinished jobs that match `which`, newest first; with `final`,
        also ended ones. With `before`, return the jobs that follow that job in this
        order. If that job is no longer recorded, return the jobs of older submissions.
        """
        ...

    async def job(self, id: JobId) -> Job | None: ...

    async def named(self, name: str, *, by: UserName | None = None) -> Job | None:
        """Return the newest job of that name, or with `by` the newest one of this user;
        None if there is no such job."""
        ...

    async def array(self, of: str, *, by: UserName | None = None) -> Seq[Job]:
        """Return the jobs of an array by index. `of` is the id of the array, or else
        its name, which selects the newest array of that name (with `by`, of this user).
        """
        ...

    async def names(self) -> Seq[str]:
        """Return the names of the newest 1,000 jobs, for suggestions."""
        ...

    async def workdirs(self) -> Set[str]:
        """Return the digests of the snapshots in which recorded jobs run, including
        ended jobs."""
        ...

    async def attempts(self, job: JobId) -> Seq[Attempt]:
        """Return the attempts of the job, by number."""
        ...

    async def receipts(self, job: JobId) -> Seq[Receipt]:
        """Return the receipts of the job, in the order in which they were written."""
        ...

    async def accounts(
        self, *, first: int, last: int, job: JobId | None = None
    ) -> list[UsageRecord]:
        """Return the usage of recorded jobs on these days (numbered since 1970, UTC),
        or of `job` alone. The caller may change the list."""
        ...

    async def days(self, *, first: int, last: int) -> list[UsageRecord]:
        """Return the sums of these days by queue, user and type of GPU, including those
        of forgotten jobs. The caller may change the list."""
        ...

    async def saves(self, job: JobId) -> Seq[Save]:
        """Return the saves of the job by step, including quarantined ones."""
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
        """Return events with a number above `after`, of a job or of a node, oldest
        first. If there are more than the limit, return the first ones, or with `newest`
        the last ones."""
        ...

    async def runs(self, *, limit: int) -> Seq[Ran]:
        """Return the run times of the newest ended jobs, newest first, up to `limit`,
        without jobs that never ran. If there are fewer, imported jobs follow."""
        ...

    async def keep_imported(self, rows: Seq[Imported], *, entry: AuditEntry) -> int:
        """Store those imported jobs whose id is not known yet, and return how many were
        stored."""
        ...

    async def known_imports(self, ids: Seq[str]) -> int:
        """Return how many of these job ids were imported already."""
        ...

    async def imported(self, *, limit: int, before: str | None = None) -> Seq[Imported]:
        """Return imported jobs, the last to end first; with `before`, those that follow
        the job of this id."""
        ...

    async def services(self, *, limit: int) -> Seq[Service]:
        """Return the newest services, the newest first, with those that are stopped."""

    async def tell(
        self, rows: Seq[StartForecastTold], *, void: Seq[JobId] = ()
    ) -> None:
        """Record start forecasts that users were given for waiting jobs, or how these
        forecasts turned out.

        Each job has one row, the newest. Rows of jobs that are no longer recorded are
        skipped; the rows of the jobs in `void` are removed.
        """
        ...

    async def told(self, *, limit: int) -> Seq[StartForecastTold]:
        """Return the newest recorded start forecasts, oldest first. The row of a
        forgotten job is removed with the job."""
        ...

    async def holdings(self, owner: UserName) -> UserHoldings:
        """Return a summary of what is stored for this user, without jobs and logs."""
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
        """Count the snapshot against this user's quota, unless it already counts for
        another user."""
        ...

    async def drop_uploads(self, digests: Seq[str]) -> None:
        """Remove the records of these snapshots, so that they count against no quota."""
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
        """Store the encrypted secret in place of any secret of this name.
        `for_everybody`: whether jobs of all users may use it. None keeps the earlier
        setting; a new secret then serves only its owner's jobs."""
        ...

    async def secret(self, name: str) -> bytes | None: ...

    async def secrets(self) -> Seq[tuple[str, UserName, float]]:
        """Return (name, user who set it, time) of each secret; never a value."""
        ...

    async def secrets_for_everybody(self) -> Set[str]:
        """Return the names of the secrets that jobs of all users may use."""
        ...

    async def seal_anew(self, name: str, *, was: bytes, now: bytes) -> bool:
        """Replace a secret's encrypted value by `now` if it is still `was`. Return
        whether it was replaced."""
        ...

    async def drop_secret(
        self, name: str, *, entry: AuditEntry | None = None
    ) -> bool: ...

    async def close(self) -> None: ...
