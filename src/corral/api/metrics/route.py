"""The route that Prometheus scrapes. It answers in the text format, or in OpenMetrics
if the request prefers that."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import chain

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from corral.api.app_state import House
from corral.api.job_visibility import CallerView, sight_of
from corral.api.jobs import Asker, Within
from corral.api.metrics.accept import wants_open_metrics
from corral.api.metrics.connections import connection_series
from corral.api.metrics.devices import gpu_families, node_families
from corral.api.metrics.families import OPEN_METRICS, PLAIN_TEXT
from corral.api.metrics.head import HeadSeries
from corral.api.metrics.services import service_families
from corral.control import Control
from corral.control.reports import report_of
from corral.domain.errors import Trouble
from corral.domain.ledger import day_of
from corral.insight.reports import UsageReport

router = APIRouter()
END = b"# EOF\n"


@router.get("/metrics", response_class=StreamingResponse)
async def metrics(request: Request, house: Within, caller: Asker) -> StreamingResponse:
    """Return the current metrics of the head, its nodes and all GPUs."""
    is_open = wants_open_metrics(request.headers.get("accept", ""))
    kind = OPEN_METRICS if is_open else PLAIN_TEXT
    text = _stream_metrics(house, is_open, sight_of(house.control, caller))
    return StreamingResponse(text, headers={"content-type": kind})


async def _stream_metrics(
    house: House, is_open: bool, sight: CallerView
) -> AsyncIterator[bytes]:
    """Yield one family at a time. Agents' messages are processed between two
    families."""
    control, settings = house.control, house.settings
    series = HeadSeries(
        control,
        version=settings.version,
        disk=_disk_of(house),
        goodput=await _load_goodput_report(control),
    )
    own_series = chain(
        series.collect(),
        connection_series(settings.connections),
        service_families(control, sight),
    )
    yield "".join(family.text(is_open=is_open) for family in own_series).encode()
    families: Iterator[str] = chain(
        node_families(control.world, control.sensed.newest),
        gpu_families(
            control.world, control.sensed.newest, counters=not is_open, seen=sight.job
        ),
    )
    for family in families:
        yield family.encode()
        await asyncio.sleep(0)
    if is_open:
        yield END


async def _load_goodput_report(control: Control) -> UsageReport | None:
    """Return the goodput report of today and yesterday. Return None if the store does
    not respond, so that the other metrics are still served."""
    today = day_of(control.now().wall)
    with suppress(Trouble):
        return await report_of(control, "goodput", "queue", first=today - 1, last=today)
    return None


def _disk_of(house: House) -> tuple[int, int] | None:
    try:
        disk = shutil.disk_usage(house.settings.root)
    except OSError:
        return None
    return disk.free, disk.total
