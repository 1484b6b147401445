"""API calls that read observations of a cluster (curves, GPUs, alerts), each as an
ApiCall value, and the methods of Client and AsyncClient for them.

As in `api_calls`, pydantic is loaded when the first answer arrives.
"""

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from corral.client.api_calls import ApiCall, read_as

if TYPE_CHECKING:
    from corral.wire import api, gpus
    from corral.wire import time_series as series
    from corral.wire.alerts import Alerts, AlertsSent
    from corral.wire.logs import LogMatches

T = TypeVar("T")


def curve(
    key: str,
    since: float | None,
    until: float | None,
    fields: tuple[str, ...],
    points: int,
) -> "ApiCall[series.SeriesView]":
    query = {"key": key, "since": since, "until": until, "points": points}
    query_fields: dict[str, Any] = {
        name: value for name, value in query.items() if value is not None
    }
    if fields:
        query_fields["fields"] = ",".join(fields)

    return ApiCall(
        method="GET",
        path="/v1/series",
        query=query_fields,
        read=read_as("time_series.SeriesView"),
    )


def gpus_now() -> "ApiCall[gpus.GpusNow]":
    return ApiCall(method="GET", path="/v1/gpus", read=read_as("gpus.GpusNow"))


def newest_events(count: int) -> "ApiCall[list[api.EventView]]":
    return ApiCall(
        method="GET",
        path="/v1/events",
        query={"newest": count},
        read=lambda body: read_as("api.Events")(body).events,
    )


def alerts_now() -> "ApiCall[Alerts]":
    return ApiCall(method="GET", path="/v1/alerts", read=read_as("alerts.Alerts"))


def test_alerts() -> "ApiCall[AlertsSent]":
    return ApiCall(
        method="POST",
        path="/v1/alerts/test",
        read=read_as("alerts.AlertsSent"),
        repeatable=False,
    )


def search_of(
    name: str, text: str, *, rank: int | None, attempt: int | None, after: str
) -> "ApiCall[LogMatches]":
    query_fields = {
        "text": text,
        "rank": rank,
        "attempt": attempt,
        "after": after or None,
    }
    return ApiCall(
        method="GET",
        path=f"/v1/jobs/{quote(name, safe='')}/logs/search",
        query={key: value for key, value in query_fields.items() if value is not None},
        read=read_as("logs.LogMatches"),
    )


class SyncSights:
    """Methods of `Client` that read observations of a cluster: curves, GPUs, events,
    alerts and log lines."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def series(
        self,
        key: str,
        *,
        since: float | None = None,
        until: float | None = None,
        fields: tuple[str, ...] = (),
        points: int = 360,
    ) -> "series.SeriesView":
        """Return measured values of "cluster", "node:N", "job:J" or "queue:Q" over
        time, by default of the last hour. `points` is the requested number of moments.
        """
        return self._call(curve(key, since, until, fields, points))

    def gpus(self) -> "gpus.GpusNow":
        """Return the activity of every GPU, by node, and the hourly cost of all
        allocated GPUs."""
        return self._call(gpus_now())

    def newest_events(self, count: int = 1) -> "list[api.EventView]":
        """Return the `count` newest events, oldest first."""
        return self._call(newest_events(count))

    def alerts(self) -> "Alerts":
        """Return the open alerts and their receivers."""
        return self._call(alerts_now())

    def test_alerts(self) -> "AlertsSent":
        """Send a test message to each receiver of alerts."""
        return self._call(test_alerts())

    def search_logs(
        self,
        job: str,
        text: str,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        after: str = "",
    ) -> "LogMatches":
        """Return the lines of an attempt's log that contain the text. One answer has a
        limited number of lines. `after`: the value `next` of the previous answer, to
        continue from there."""
        return self._call(search_of(job, text, rank=rank, attempt=attempt, after=after))


class AsyncSights:
    """Methods of `AsyncClient` that read observations of a cluster: curves, GPUs,
    events, alerts and log lines."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def series(
        self,
        key: str,
        *,
        since: float | None = None,
        until: float | None = None,
        fields: tuple[str, ...] = (),
        points: int = 360,
    ) -> "series.SeriesView":
        return await self._call(curve(key, since, until, fields, points))

    async def gpus(self) -> "gpus.GpusNow":
        return await self._call(gpus_now())

    async def newest_events(self, count: int = 1) -> "list[api.EventView]":
        return await self._call(newest_events(count))

    async def alerts(self) -> "Alerts":
        return await self._call(alerts_now())

    async def test_alerts(self) -> "AlertsSent":
        return await self._call(test_alerts())

    async def search_logs(
        self,
        job: str,
        text: str,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        after: str = "",
    ) -> "LogMatches":
        call = search_of(job, text, rank=rank, attempt=attempt, after=after)
        return await self._call(call)
