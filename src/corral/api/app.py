"""The head's ASGI application: its routes, their rights, and the middleware that checks
rights."""

from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from corral.api import (
    active_checks,
    alerts,
    batches,
    browser_sessions,
    checkpoint_changes,
    cluster,
    errors,
    events,
    failed_jobs,
    gateway_routes,
    gpus,
    imports,
    job_changes,
    job_logs,
    jobs,
    joining,
    metrics,
    models,
    node_repairs,
    oidc,
    outputs,
    plans,
    queues,
    reports,
    secrets,
    services,
    stacks,
    stored_files,
    terminal_confirm,
    terminals,
    uploads,
    users,
)
from corral.api import time_series as curves
from corral.api.agent_channel import Channels
from corral.api.agent_sessions import DialledSessions
from corral.api.app_state import House, house_of
from corral.api.auth import hosts_of
from corral.api.auth_middleware import Gate
from corral.api.batch_desk import BatchDesk
from corral.api.disk_reserve import DiskGuard
from corral.api.failed_log_ins import FailedLogIns
from corral.api.file_shelf import FileShelf
from corral.api.head_proof import Proofs
from corral.api.job_tokens import JobTokenIndex
from corral.api.kept_logs import LogKeeper
from corral.api.log_quota import LogQuota
from corral.api.output_desk import OutputDesk
from corral.api.pending_log_ins import PendingLogIns
from corral.api.quotas import QuotaDesk
from corral.api.read_audit import ReadsOfOthers
from corral.api.request_rates import Rates
from corral.api.route_rights import ADD_MACHINES, OPERATORS, RouteRights
from corral.api.settings import ApiSettings
from corral.api.snapshots import Snapshots
from corral.api.terminal_bridge import Terminals
from corral.api.terminal_log_ins import TerminalLogIns
from corral.control import Alerting, Control, Forecasts
from corral.domain.errors import CorralError
from corral.ports.planner import Planner
from corral.ports.series_store import SeriesStore

TITLE: Final = "Corral"
HEARTBEATS: Final = "/v1/agents/heartbeats"
LOGS: Final = "/v1/agents/logs"


def create_app(
    control: Control,
    *,
    channels: Channels,
    settings: ApiSettings,
    forecasts: Forecasts | None = None,
    series: SeriesStore | None = None,
    alerting: Alerting | None = None,
    planner: Planner | None = None,
) -> FastAPI:
    """Return the head's ASGI application. `control` must have been started before the
    first request.

    Raises: ValueError when a route has no rights.
    """
    app = FastAPI(
        title=TITLE,
        version=settings.version,
        # it would be served without a token; docs/generate.py asks the app
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    _handle_errors(app)
    # not included as routers: rights are looked up in one list
    app.router.routes += _collect_routes()
    failed = FailedLogIns(store=control.store, clock=control.clock)
    log_quota = _log_quota(control, settings)
    sessions = DialledSessions()
    app.state.house = House(
        rates=Rates(
            user_requests=settings.limits.user_requests, clock=control.clock.monotonic
        ),
        failed_log_ins=failed,
        reads=ReadsOfOthers(store=control.store, clock=control.clock),
        pending_log_ins=PendingLogIns(wall=control.clock.wall),
        terminal_log_ins=TerminalLogIns(clock=control.clock),
        control=control,
        forecasts=forecasts,
        channels=channels,
        settings=settings,
        keeper=log_quota.keeper,
        log_quota=log_quota,
        snapshots=Snapshots(settings.snapshots, most_bytes=settings.snapshot_bytes),
        terminals=Terminals(channels, sessions),
        sessions=sessions,
        outputs=OutputDesk(channels, sessions, control),
        quotas=QuotaDesk(
            control=control, cluster=settings.limits.quotas, logs=log_quota.used
        ),
        disk=_disk_guard(control, settings),
        files=FileShelf(settings.files),
        batches=BatchDesk(store=control.store),
        series=series,
        alerting=alerting,
        planner=planner,
    )
    _add_gate(app, control, settings, failed)
    return app


def _add_gate(
    app: FastAPI, control: Control, settings: ApiSettings, failed: FailedLogIns
) -> None:
    app.add_middleware(
        Gate,
        control=control,
        rights=RouteRights(app.router.routes),
        hosts=hosts_of(settings.url, settings.hosts),
        most=settings.snapshot_bytes,
        jobs=JobTokenIndex(control, settings.seals),
        log_ins=failed,
        is_tls=settings.is_tls,
        more={ADD_MACHINES: OPERATORS} if settings.operators_add_machines else {},
        proofs=Proofs(control.store, settings.seals),
        rates=app.state.house.rates,
        talks={HEARTBEATS: beats, LOGS: logs},
    )


def _handle_errors(app: FastAPI) -> None:
    app.add_exception_handler(CorralError, errors.on_refusal)
    app.add_exception_handler(HTTPException, errors.on_http)
    app.add_exception_handler(RequestValidationError, errors.on_invalid)


def _log_quota(control: Control, settings: ApiSettings) -> LogQuota:
    wall = control.clock.wall
    keeper = LogKeeper(settings.logs, most_bytes=settings.log_bytes, wall=wall)
    return LogQuota(keeper, control, settings.limits.quotas)


def _disk_guard(control: Control, settings: ApiSettings) -> DiskGuard:
    return DiskGuard(
        reserve_bytes=settings.limits.disk_reserve_bytes,
        monotonic=control.clock.monotonic,
        room=settings.disk_room,
    )


def _collect_routes() -> list[BaseRoute]:
    return [
        *job_changes.router.routes,
        *jobs.router.routes,
        *job_logs.router.routes,
        *events.router.routes,
        *failed_jobs.router.routes,
        *cluster.router.routes,
        *uploads.router.routes,
        *node_repairs.router.routes,
        *active_checks.router.routes,
        *joining.router.routes,
        *queues.router.routes,
        *services.router.routes,
        *models.router.routes,
        *gateway_routes.router.routes,
        *stored_files.router.routes,
        *batches.router.routes,
        *users.router.routes,
        *secrets.router.routes,
        *imports.router.routes,
        *browser_sessions.router.routes,
        *oidc.router.routes,
        *terminal_confirm.router.routes,
        *terminals.router.routes,
        *plans.router.routes,
        *metrics.router.routes,
        *curves.router.routes,
        *gpus.router.routes,
        *alerts.router.routes,
        *outputs.router.routes,
        *stacks.router.routes,
        *checkpoint_changes.router.routes,
        *reports.router.routes,
        WebSocketRoute("/v1/jobs/{job}/attach", attach),
        WebSocketRoute(HEARTBEATS, beats),
        WebSocketRoute(LOGS, logs),
        WebSocketRoute("/v1/agents/attach/{session}", agent_attach),
    ]


async def beats(socket: WebSocket) -> None:
    house = house_of(socket)
    if not house.channels.users:
        await house.name_users()
    await house.channels.beats(socket, house.control)


async def logs(socket: WebSocket) -> None:
    house = house_of(socket)
    await house.channels.logs(
        socket,
        house.control,
        house.keeper,
        has_room=lambda: not house.disk.is_low(house.settings.logs),
    )


async def attach(socket: WebSocket) -> None:
    house = house_of(socket)
    await house.terminals.person(socket, house.control)


async def agent_attach(socket: WebSocket) -> None:
    await house_of(socket).sessions.agent(socket)
