"""Data from nodes that is out of bounds and therefore dropped, or too much and
therefore delayed: it is counted, and reported at a limited rate."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from corral.domain.bounds import cut
from corral.domain.cluster_warning import ClusterWarning, WarningCode
from corral.domain.event_kind import EventKind
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.world import Event
from corral.ports.log import HeadLogger

log = HeadLogger("corral.control")

REPORT_SECONDS: Final = 600.0  # between two events about the same node and kind of data
WARN_SECONDS: Final = 3600.0  # time for which `corral status` names the node
MOST_REPORTS: Final = 1_024  # that are remembered; the oldest go first
MOST_EVENTS: Final = 64  # that wait for a commit
WHY_LETTERS: Final = 200

ReportKey = tuple[NodeId, str, AttemptKey | None]


@dataclass(slots=True)
class _Report:
    """Amount of data of one kind that was dropped since the drops were last reported.
    `is_late`: the data was delayed and not dropped."""

    count: int = 0
    is_late: bool = False
    why: str = ""
    at: float = 0.0
    reported_at: float = float("-inf")


class DroppedData:
    """Counters of the data that one head has dropped. `counts`: number of drops since
    the head began, by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reports: OrderedDict[ReportKey, _Report] = OrderedDict()
        self._events: list[Event] = []

    def note(
        self,
        node: NodeId,
        what: str,
        why: str,
        *,
        at: float,
        key: AttemptKey | None = None,
        count: int = 1,
        is_late: bool = False,
    ) -> bool:
        """Count dropped data. Return True if the drop is reported now, which means that
        an event is ready to be recorded.

        Args:
            is_late: the data was delayed and not dropped.
            key: the attempt on this node to which the data belongs.
            at: time on the head's wall clock.
        """
        self.counts[what] += count
        report = self._reports.setdefault((node, what, key), _Report())
        self._reports.move_to_end((node, what, key))
        while len(self._reports) > MOST_REPORTS:
            self._reports.popitem(last=False)
        report.count += count
        report.is_late = is_late
        report.why, report.at = cut(why, WHY_LETTERS), at
        if (
            0 <= at - report.reported_at < REPORT_SECONDS
            or len(self._events) >= MOST_EVENTS
        ):
            return False
        report.reported_at = at
        self._events.append(_drop_event(node, what, key, report))
        log.warning(
            "dropped", node=node, what=what, of=key, count=report.count, why=report.why
        )
        report.count = 0
        return True

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def take_events(self) -> tuple[Event, ...]:
        """Return the events to record. Each event is returned once."""
        events, self._events = tuple(self._events), []
        return events

    def warnings(self, at: float) -> Iterator[ClusterWarning]:
        """Yield a warning for each node of which data was dropped lately."""
        newest_by_node: dict[NodeId, tuple[float, str, str, bool]] = {}
        for (node, data_kind, _), report in self._reports.items():
            if at - report.at < WARN_SECONDS:
                newest_by_node[node] = max(
                    newest_by_node.get(node, (0.0, "", "", False)),
                    (report.at, data_kind, report.why, report.is_late),
                )
        for node, (_, data_kind, reason, is_late) in sorted(newest_by_node.items()):
            fault_text = (
                "too much data, which is delayed"
                if is_late
                else "invalid data, which is dropped"
            )
            yield ClusterWarning(
                code=WarningCode.DROPPED_DATA,
                text=f"node {node} sends {fault_text}; the last ({data_kind}): {reason}; "
                f"run: corral node show {node}",
                node=node,
            )


def _drop_event(
    node: NodeId, what: str, key: AttemptKey | None, report: _Report
) -> Event:
    times_text = "" if report.count == 1 else f" ({report.count} times)"
    job, attempt = key or (None, None)
    if report.is_late:
        text = f"data of node {node} ({what}) was delayed{times_text}: {report.why}"
    else:
        text = (
            f"node {node} sent invalid data ({what}), which was dropped{times_text}: "
            f"{report.why}"
        )
    return Event(
        at=report.at,
        kind=EventKind.DROPPED,
        text=text,
        node=node,
        job=job,
        attempt=attempt,
    )
