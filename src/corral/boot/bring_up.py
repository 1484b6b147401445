"""Start of a cluster: its settings, a head that serves, and nodes that are alive."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from corral.agent.discovery.helper import unread_gpus
from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import LOCAL, SETTINGS, STORE_FILE
from corral.boot.engine_settings import (
    check_engine_settings,
    check_files,
    with_whole_paths,
)
from corral.boot.extras import check_installed
from corral.boot.head_port import last_port
from corral.boot.pretend_guard import check_has_no_gpu
from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    keep_variable,
    write_atomically,
)
from corral.boot.start_head import (
    StartFailed,
    current_directory,
    head_runs,
    last_lines,
    logged_bytes,
    node_processes,
    start_head,
)
from corral.boot.stores import check_several, url_in
from corral.domain.cluster_warning import WarningCode
from corral.domain.errors import Conflict, SpecInvalid
from corral.engines.local.labels import labels_still_meant
from corral.wire.node_policy import POLICY_FILE

if TYPE_CHECKING:
    from corral.wire import api

OF_OWN_NODES: Final = frozenset(
    setting.name for setting in SETTINGS.values() if setting.of_own_nodes
)
# settings that do not require running nodes to restart
OF_HEAD_ALONE: Final = frozenset(
    setting.name for setting in SETTINGS.values() if setting.of_head_alone
)
NODES_SECONDS: Final = 60.0
LENT_SECONDS: Final = 110.0  # Ray alone takes some ten seconds of a processor to begin
SILENT_SECONDS: Final = 30.0  # that what lends the nodes fails without a break
POLL_SECONDS: Final = 0.03
GPU_SECONDS: Final = 20.0
_COUNT: Final = (
    "from corral.agent.discovery.helper import real_gpus; print(len(real_gpus(None)))"
)


def real_gpu_count() -> int:
    """Return the number of GPUs of this machine. A helper process counts them, since a
    driver may hang."""
    try:
        completed_process = subprocess.run(
            [sys.executable, "-P", "-c", _COUNT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GPU_SECONDS,
        )
        return int(completed_process.stdout or 0)
    except (subprocess.TimeoutExpired, ValueError):
        return 0


def settled(
    asked: ClusterOptions,
    count_gpus: Callable[[], int],
    unread_gpus: Callable[[], Sequence[str]] = unread_gpus,
) -> ClusterSettings:
    """Return the settings of a new cluster on a machine with `count_gpus` GPUs.

    Args:
        unread_gpus: Makers of the GPUs that are in the machine, whether a driver
            responds or not.
    Raises: SpecInvalid if the machine has too few GPUs, or no driver responds for its
    GPUs, and pretend GPUs were not requested; or if an option of the local engine is
    given for another engine.
    """
    if (asked.value("engine") or LOCAL) != LOCAL:
        return lent(asked)
    given_options = {"nodes": 1, **asked.given}
    if asked.value("pretend"):
        return ClusterSettings(**given_options)
    own_gpus = count_gpus()
    nodes = given_options["nodes"]
    gpus = asked.value("gpus")
    if gpus is None and nodes > 1:
        given_options["gpus"] = own_gpus // nodes if nodes > 0 else 0
    if own_gpus == 0 and given_options.get("gpus"):
        check_has_no_gpu(given_options["gpus"], unread_gpus())
    if own_gpus == 0:
        return ClusterSettings(
            **(given_options | {"pretend": bool(given_options.get("gpus"))})
        )
    if (gpus or 0) * nodes > own_gpus or (gpus is None and own_gpus < nodes):
        raise SpecInvalid(
            f"{nodes} nodes with {gpus if gpus is not None else 1} GPUs each need more than the "
            f"{own_gpus} GPUs of this machine",
            hint="request fewer nodes or GPUs, or add --pretend to use pretend GPUs",
        )
    if asked.value("gpu_slices"):
        raise SpecInvalid(
            "--gpu-slices is only for pretend GPUs, and this machine has real GPUs",
            hint="create MIG slices with nvidia-smi mig, which Corral finds; or add "
            "--pretend",
        )
    if asked.value("gpu_type") is not None:
        raise SpecInvalid(
            "--gpu-type is only for pretend GPUs, and this machine has real GPUs",
            hint="remove --gpu-type, or add --pretend to use pretend GPUs",
        )
    return ClusterSettings(**given_options)


def lent(asked: ClusterOptions) -> ClusterSettings:
    """Return the settings of a cluster whose nodes belong to another engine.

    Raises: SpecInvalid if the engine does not exist, or nodes of this machine are
    requested.
    """
    node_options = [name for name in asked.given if name in OF_OWN_NODES]
    if node_options:
        raise SpecInvalid(
            f"{', '.join(map(_option_name, node_options))}: only valid with the local "
            f"engine, not with --engine {asked.value('engine')}",
            hint=f"start without these options: corral up --engine {asked.value('engine')}",
        )
    return ClusterSettings(**asked.given)


def decide(
    place: ClusterDir, asked: ClusterOptions, count_gpus: Callable[[], int]
) -> ClusterSettings:
    """Return the settings of the cluster in this directory: those of a new cluster, or
    the existing ones with the requested changes.

    Raises: SpecInvalid; Conflict if the cluster runs and the request would change its
    settings.
    """
    cluster_settings = ClusterSettings.load(place)
    engine = asked.value("engine") or (
        cluster_settings.engine if cluster_settings is not None else LOCAL
    )
    engine_settings = asked.value("engine_settings")
    if engine_settings is not None:
        absolute_settings = with_whole_paths(engine, engine_settings)
        asked = asked.with_values(engine_settings=absolute_settings)
    if cluster_settings is None:
        check_engine_settings(engine, asked.value("engine_settings") or {})
        return settled(asked, count_gpus)
    kept_options = {name: getattr(cluster_settings, name) for name in SETTINGS}
    if engine != cluster_settings.engine:
        kept_options.pop("engine_settings")
    check_engine_settings(
        engine, (kept_options | asked.given).get("engine_settings", {})
    )
    changed_names = [
        name
        for name, value in asked.given.items()
        if getattr(cluster_settings, name) != value
    ]
    if not changed_names:
        return cluster_settings
    of_head = OF_HEAD_ALONE.issuperset(changed_names)
    if head_runs(place) or (node_processes(place) and not of_head):
        differences = ", ".join(
            f"{_option_name(name)} is {_format_setting(getattr(cluster_settings, name))}"
            for name in changed_names
        )
        option_text = " ".join(
            _setting_options(name, asked.given[name]) for name in changed_names
        )
        raise Conflict(
            f"the cluster in {place.root} already runs with other settings: "
            f"{differences}",
            hint="to change this while jobs continue, run: corral up --restart "
            f"{option_text}"
            if of_head
            else f"to change this (ends all jobs), run: corral down; corral up {option_text}",
        )
    nodes = asked.value("nodes")
    if nodes is not None:
        kept_options["labels"] = labels_still_meant(cluster_settings.labels, nodes)
    if engine != LOCAL:
        kept_options = {
            name: value
            for name, value in kept_options.items()
            if name not in OF_OWN_NODES
        }
    return settled(ClusterOptions(**(kept_options | asked.given)), count_gpus)


def host_of(place: ClusterDir, asked: ClusterOptions) -> str | None:
    """Return the requested address on which the cluster serves, else the address of the
    existing cluster; None if neither is set."""
    cluster_settings = ClusterSettings.load(place)
    host: str | None = asked.value("host")
    return host or (cluster_settings.host if cluster_settings is not None else None)


def with_variables(
    place: ClusterDir,
    asked: ClusterOptions,
    environment: Mapping[str, str] = os.environ,
) -> ClusterOptions:
    """Return the request, completed by the settings that are set only by environment
    variables.

    The value of a variable is stored in a file of the directory, for the next start.
    """
    files = {
        setting.name: keep_variable(
            place, setting.variable, setting.variable_file, environment
        )
        for setting in SETTINGS.values()
        if setting.variable and asked.value(setting.name) is None
    }
    return asked.with_values(**files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Result of starting a cluster. `is_new` is false if the head ran already.
    `continues` is true if the cluster existed before. `since_bytes` is the size of the
    head's log before the start. `lost_port` is the previous head's port, if another
    process uses that port now."""

    is_new: bool
    continues: bool = False
    since_bytes: int
    lost_port: int | None = None


def bring_up(place: ClusterDir, asked: ClusterOptions) -> Start:
    """Start the cluster, unless its head runs already.

    Raises: Conflict if the request differs from the running cluster, or this machine
    lacks what the cluster needs; StartFailed if the head does not start.
    """
    place.create()
    previous_contents = {
        path: _read_if_exists(path)
        for path in (place.cluster_json, place.root / STORE_FILE)
    }
    if not head_runs(place):
        asked = with_variables(place, asked)
    if place.joined.exists():
        raise Conflict(
            f"{place.root} is a node's directory: this machine has joined another cluster",
            hint="to start its agent again, run: corral join; to leave that cluster, "
            "run: corral leave",
        )
    settings = decide(place, asked, real_gpu_count)
    check_several(settings)
    if head_runs(place):
        return Start(is_new=False, since_bytes=logged_bytes(place))
    check_files(settings.engine, settings.engine_settings)
    check_installed(settings)
    url_in(settings.store_file)
    replace(settings, started_in=current_directory()).save(place)
    if asked.value("policy") is not None:
        for policy in place.nodes.glob(f"*/{POLICY_FILE}"):
            policy.unlink()  # the head writes it again from the settings
    is_known_cluster = previous_contents[place.cluster_json] is not None
    start = Start(
        is_new=True, continues=is_known_cluster, since_bytes=logged_bytes(place)
    )
    port = settings.port or last_port(place)
    try:
        start_head(place)
    except StartFailed:
        if not head_runs(place):  # one that is only late reads them yet
            _put_back(previous_contents)
        raise
    moved = bool(port) and last_port(place) != port
    return replace(start, lost_port=port if moved else None)


def _read_if_exists(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _put_back(files: Mapping[Path, str | None]) -> None:
    """Restore the settings files of the last head after a failed start, from path and
    content (None: the file did not exist)."""
    for path, text in files.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, text)


def wait_for_nodes(
    place: ClusterDir,
    status: "Callable[[], api.Status]",
    *,
    since_bytes: int,
    tell: Callable[[str], None] = lambda text: None,
) -> "api.Status":
    """Return the status once every node is alive and has sent a heartbeat to this head.

    Until then, the status may still show what nodes reported to the previous head.
    `since_bytes` is the size of the head's log before the start. `tell` receives
    messages about nodes that an engine does not provide yet.

    Raises: StartFailed with the end of an agent's log if a node does not start.
    """
    settings = ClusterSettings.load(place) or ClusterSettings()
    if settings.engine != LOCAL:
        return wait_for_any(place, settings.engine, status, since_bytes, tell)
    expected_nodes = settings.node_names()
    give_up_at = time.monotonic() + NODES_SECONDS
    while True:
        status_now = status()
        live_nodes = {
            node.id
            for node in status_now.nodes
            if node.has_heartbeat and node.liveness == "alive"
        }
        missing = [name for name in expected_nodes if name not in live_nodes]
        if not missing:
            return status_now
        if time.monotonic() > give_up_at:
            break
        time.sleep(POLL_SECONDS)
    log = place.nodes / missing[0] / "agent.log"
    raise StartFailed(
        f"node {missing[0]} is not alive after {NODES_SECONDS:g} s; the last lines of {log}:\n"
        f"{last_lines(log, 0)}",
        hint="run: corral status; or stop the cluster: corral down",
    )


def wait_for_any(
    place: ClusterDir,
    engine: str,
    status: "Callable[[], api.Status]",
    since_bytes: int,
    tell: Callable[[str], None],
) -> "api.Status":
    """Return the status once any of the engine's nodes is alive.

    Each reason for waiting, and each warning of the head, is reported once.

    Raises: StartFailed with the head's warnings and the end of its log if no node
    starts. This happens sooner if the system that provides the nodes does not respond
    at all.
    """
    began = failed = time.monotonic()
    shown_warnings: set[str] = set()
    while True:
        status_now = status()
        if any(
            node.has_heartbeat and node.liveness == "alive" for node in status_now.nodes
        ):
            return status_now
        for text in (
            f"waiting for a node of {engine}",
            *(f"warning: {warning.text}" for warning in status_now.warnings),
        ):
            if text not in shown_warnings:
                shown_warnings.add(text)
                tell(text)
        now = time.monotonic()
        codes = {warning.code for warning in status_now.warnings}
        if WarningCode.ENGINE_UNREACHABLE not in codes:
            failed = now
        if now - failed > SILENT_SECONDS or now - began > LENT_SECONDS:
            break
        time.sleep(POLL_SECONDS)
    warning_lines = "".join(f"\n  {warning.text}" for warning in status_now.warnings)
    raise StartFailed(
        f"no node of {engine} is alive after {now - began:.0f} s{warning_lines}\n"
        f"the last lines of {place.head_log}:\n{last_lines(place.head_log, since_bytes)}\n"
        "the head still runs and continues to try",
        hint="see the state: corral status; or start nodes on this machine instead: "
        f"corral down; corral up --engine {LOCAL}",
    )


def _format_setting(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == () or value == {}:
        return "not set"
    if isinstance(value, Mapping):
        value = tuple(f"{name}={entry_text}" for name, entry_text in value.items())
    return ", ".join(value) if isinstance(value, tuple) else f"{value}"


def _setting_options(name: str, value: Any) -> str:
    """Return the command line options that set a value. A setting with several values
    has one option for each value."""
    setting = SETTINGS[name]
    if isinstance(value, bool):
        return setting.option if value else setting.negative
    if isinstance(value, Mapping):
        value = tuple(f"{key}={entry_text}" for key, entry_text in value.items())
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"{setting.option} {quote(str(value))}" for value in values)


def _option_name(name: str) -> str:
    return SETTINGS[name].option
