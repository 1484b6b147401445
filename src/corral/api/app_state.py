"""State of the application that every route receives."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.responses import Response

from corral.api import event_streams
from corral.api.agent_channel import Channels
from corral.api.agent_sessions import DialledSessions
from corral.api.auth import Caller
from corral.api.batch_desk import BatchDesk
from corral.api.disk_reserve import DiskGuard
from corral.api.errors import RequestInvalid
from corral.api.failed_log_ins import FailedLogIns
from corral.api.file_shelf import FileShelf
from corral.api.job_visibility import seen_events, sight_of
from corral.api.kept_logs import LogKeeper
from corral.api.log_quota import LogQuota
from corral.api.log_ranges import SearchLine
from corral.api.login_links import LogInLinks
from corral.api.output_desk import OutputDesk
from corral.api.pending_log_ins import PendingLogIns
from corral.api.quotas import QuotaDesk
from corral.api.read_audit import ReadsOfOthers
from corral.api.request_rates import Rates
from corral.api.settings import ApiSettings
from corral.api.snapshots import Snapshots
from corral.api.terminal_bridge import Terminals
from corral.api.terminal_log_ins import TerminalLogIns
from corral.api.user_numbers import OwnerNumbers
from corral.control import Alerting, Control, Forecasts, InLine
from corral.domain.ids import JobId
from corral.domain.users import submitters
from corral.ports.planner import Planner
from corral.ports.series_store import SeriesStore
from corral.wire import api


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """State of one head, which its routes use. `tasks`: work that continues after an
    answer; `forecasts` is None where starts and ends are not forecast."""

    control: Control
    forecasts: Forecasts | None
    channels: Channels
    settings: ApiSettings
    keeper: LogKeeper
    log_quota: LogQuota
    snapshots: Snapshots
    terminals: Terminals
    sessions: DialledSessions
    outputs: OutputDesk
    quotas: QuotaDesk
    disk: DiskGuard
    pending_log_ins: PendingLogIns
    terminal_log_ins: TerminalLogIns
    failed_log_ins: FailedLogIns
    reads: ReadsOfOthers
    rates: Rates
    files: FileShelf
    batches: BatchDesk
    series: SeriesStore | None = None
    alerting: Alerting | None = None
    planner: Planner | None = None
    links: LogInLinks = field(default_factory=LogInLinks)
    in_line: InLine = field(default_factory=InLine)
    searches: SearchLine = field(default_factory=SearchLine)
    owner_numbers: OwnerNumbers = field(default_factory=OwnerNumbers)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Run the coroutine in the background, so that it continues after the answer."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def name_users(self) -> None:
        """Set the users whose accounts the nodes look up: all who may submit jobs."""
        self.channels.users = submitters(await self.control.store.users())

    async def events(
        self,
        job: JobId | None,
        after: int,
        follow: bool,
        last_id: str | None,
        caller: Caller,
    ) -> api.Events | Response:
        """Return a page of events, the first ones after the number `after` (`last_id`
        replaces it), or with `follow` a stream of them. `job` None: events of all jobs.
        """
        if last_id is not None:
            if not last_id.isascii() or not last_id.isdigit() or len(last_id) > 18:
                raise RequestInvalid(
                    f"Last-Event-ID {last_id[:40]!r} is not the number of an event"
                )
            after = int(last_id)
        if follow:
            return event_streams.response(
                event_streams.follow_events(self.control, job, after, caller)
            )
        events = await self.control.store.events(
            after=after, job=job, limit=event_streams.PAGE
        )
        visible_events = await seen_events(
            self.control, sight_of(self.control, caller), events
        )
        return api.Events(events=[api.EventView.of(event) for event in visible_events])


def house_of(connection: HTTPConnection) -> House:
    house: House = connection.app.state.house
    return house
