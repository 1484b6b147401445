"""Five Grafana dashboards of Corral's own series: cluster, job, money, health, services.

    python deploy/grafana/dashboards.py        writes them beside this file

They want a Prometheus data source that scrapes the head (deploy/README.md); import the JSON files.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
WIDTH: Final = 24
HELD: Final = 'user!=""'
# variables of which several values may be chosen
SEVERAL: Final = frozenset({"service"})


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A picture: queries by the legend of their series. `unit` is one of Grafana's."""

    title: str
    queries: Mapping[str, str]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    help: str = ""
    stacked: bool = False
    most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A page of panels. `variables`: names and the label values that they are chosen from."""

    name: str
    title: str
    panels: Sequence[Panel]
    variables: Mapping[str, str] = field(default_factory=dict)


def stat(title: str, query: str, unit: str = "short", help: str = "") -> Panel:
    return Panel(
        title=title,
        queries={"": query},
        kind="stat",
        unit=unit,
        width=4,
        height=4,
        help=help,
    )


CLUSTER: Final = Dashboard(
    name="cluster",
    title="Corral: cluster",
    panels=[
        stat("GPUs", 'corral_gpus{kind="total"}'),
        stat("Held", 'corral_gpus{kind="used"} / ignoring(kind) corral_gpus{kind="total"}',
             "percentunit"),
        stat("Busy while held", f"avg(DCGM_FI_DEV_GPU_UTIL{{{HELD}}})", "percent",
             "Utilisation of the GPUs that jobs hold."),
        stat("Waiting jobs", 'sum(corral_jobs{state="QUEUED"})'),
        stat("Longest wait", "max(corral_queue_oldest_wait_seconds)", "s"),
        stat("Silent nodes", "count(corral_node_up == 0) or vector(0)"),
        Panel(title="GPUs", queries={"held": 'corral_gpus{kind="used"}',
                                     "free": 'corral_gpus{kind="free"}',
                                     "away": 'corral_gpus{kind="away"}'}, stacked=True),
        Panel(title="Jobs", queries={"{{state}}": "sum by (state) (corral_jobs)"}, stacked=True),
        Panel(title="GPUs held by queue", queries={"{{queue}}": "corral_queue_used_gpus"},
              stacked=True),
        Panel(title="Wait before the first start", unit="s", queries={
            "median": "histogram_quantile(0.5, sum by (le) (rate(corral_wait_seconds_bucket[1h])))",
            "90th percentile":
                "histogram_quantile(0.9, sum by (le) (rate(corral_wait_seconds_bucket[1h])))"}),
        Panel(title="Starts and ends a minute", queries={
            "starts": "60 * sum(rate(corral_attempts_started_total[5m]))",
            "{{state}}": "60 * sum by (state) (rate(corral_jobs_ended_total[5m]))"}),
        Panel(title="One decision", unit="s", queries={
            "median": "histogram_quantile(0.5, sum by (le) (rate(corral_tick_seconds_bucket[5m])))",
            "99th percentile":
                "histogram_quantile(0.99, sum by (le) (rate(corral_tick_seconds_bucket[5m])))"}),
        Panel(title="Utilisation by node", kind="heatmap", width=24, unit="percent", queries={
            "{{Hostname}}": "avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)"}),
    ],
)  # fmt: skip

JOB: Final = Dashboard(
    name="job",
    title="Corral: job",
    variables={"job": f"label_values(DCGM_FI_DEV_GPU_UTIL{{{HELD}}}, job)"},
    panels=[
        stat("GPUs", 'count(DCGM_FI_DEV_GPU_UTIL{job="$job"})'),
        stat("Busy", 'avg(DCGM_FI_DEV_GPU_UTIL{job="$job"})', "percent"),
        stat("Least busy GPU", 'min(DCGM_FI_DEV_GPU_UTIL{job="$job"})', "percent"),
        stat("Memory in use", 'avg(DCGM_FI_DEV_FB_USED{job="$job"} / '
             '(DCGM_FI_DEV_FB_USED{job="$job"} + DCGM_FI_DEV_FB_FREE{job="$job"}))', "percentunit"),
        stat("Power", 'sum(DCGM_FI_DEV_POWER_USAGE{job="$job"})', "watt"),
        stat("Hottest", 'max(DCGM_FI_DEV_GPU_TEMP{job="$job"})', "celsius"),
        *(
            Panel(title=title, unit=unit, queries={"{{Hostname}} {{gpu}}": f'{name}{{job="$job"}}'})
            for title, name, unit in (
                ("Utilisation", "DCGM_FI_DEV_GPU_UTIL", "percent"),
                ("Memory traffic", "DCGM_FI_DEV_MEM_COPY_UTIL", "percent"),
                ("Memory in use", "DCGM_FI_DEV_FB_USED", "decmbytes"),
                ("Power", "DCGM_FI_DEV_POWER_USAGE", "watt"),
                ("Clock", "DCGM_FI_DEV_SM_CLOCK", "rotmhz"),
                ("Temperature", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
                ("PCIe sent", "DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "KBs"),
                ("PCIe received", "DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "KBs"),
            )
        ),
    ],
)  # fmt: skip

MONEY: Final = Dashboard(
    name="money",
    title="Corral: queues and money",
    panels=[
        stat("GPU-hours of the last day",
             'sum(increase(corral_queue_gpu_seconds_total{queue!="default"}[1d])) / 3600 or '
             "sum(increase(corral_queue_gpu_seconds_total[1d])) / 3600"),
        stat("Lost GPU-hours of the last day",
             "sum(increase(corral_lost_gpu_seconds_total[1d])) / 3600"),
        stat("Held and hardly busy",
             f"count(avg_over_time(DCGM_FI_DEV_GPU_UTIL{{{HELD}}}[30m]) < 5) or vector(0)",
             help="GPUs that jobs hold with less than 5 % of use for half an hour."),
        stat("Budgets near their end",
             "count(corral_queue_budget_left / corral_queue_budget < 0.1) or vector(0)"),
        stat("Power", "sum(DCGM_FI_DEV_POWER_USAGE)", "watt"),
        stat("Energy of the last day",
             "sum(increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1d])) / 3.6e9", "kwatth"),
        Panel(title="GPUs held", queries={"{{queue}}": "corral_queue_used_gpus"}, stacked=True),
        Panel(title="Of these borrowed", queries={"{{queue}}": "corral_queue_borrowed_gpus"},
              stacked=True),
        Panel(title="Own", queries={"{{queue}}": "corral_queue_own_gpus"}),
        Panel(title="Owed", queries={"{{queue}}": "corral_queue_owed_gpus"}),
        Panel(title="Budget left", unit="percentunit", most=1, queries={
            "{{queue}}": "corral_queue_budget_left / corral_queue_budget"}),
        Panel(title="Days until a budget is spent", unit="d", queries={
            "{{queue}}": "(corral_queue_budget_runs_out_timestamp_seconds - time()) / 86400"}),
        Panel(title="Busy by queue", unit="percent", queries={
            "{{queue}}": f"avg by (queue) (DCGM_FI_DEV_GPU_UTIL{{{HELD}}})"}),
        Panel(title="Goodput: useful of held, today and yesterday", unit="percentunit", most=1,
              queries={"{{queue}}": "corral_queue_goodput_ratio",
                       "all": "corral_goodput_ratio"}),
        Panel(title="Effective training time ratio, today and yesterday", unit="percentunit",
              most=1, queries={"{{queue}}": "corral_queue_ettr_ratio",
                               "all": "corral_ettr_ratio"}),
        Panel(title="Mean time to failure, today and yesterday", unit="s",
              queries={"{{queue}}": "corral_queue_mttf_seconds", "all": "corral_mttf_seconds"}),
        Panel(title="Mean time to repair, today and yesterday", unit="s",
              queries={"{{queue}}": "corral_queue_mttr_seconds", "all": "corral_mttr_seconds"}),
        Panel(title="What came of held GPUs, today and yesterday (GPU-seconds)", stacked=True,
              queries={"{{kind}}": "sum by (kind) (corral_queue_recent_gpu_seconds)"}),
        Panel(title="Held and idle by queue (GPUs)", stacked=True, queries={
            "{{queue}}":
                'sum by (queue) (rate(corral_sensed_gpu_seconds_total{kind="idle"}[10m]))'}),
        Panel(title="Lost to interruptions (GPU-seconds a second)", queries={
            "{{kind}}": "sum by (kind) (rate(corral_lost_gpu_seconds_total[1h]))"}, stacked=True),
    ],
)  # fmt: skip

HEALTH: Final = Dashboard(
    name="health",
    title="Corral: health",
    panels=[
        stat("Nodes", "sum(corral_nodes)"),
        stat("Silent", "count(corral_node_up == 0) or vector(0)"),
        stat("Kept from work", 'sum(corral_nodes{work!="open"}) or vector(0)'),
        stat("GPUs lost", "sum(corral_gpu_lost) or vector(0)"),
        stat("Drivers that hang", "sum(corral_gpu_silent) or vector(0)"),
        stat("Remaps failed", "sum(DCGM_FI_DEV_ROW_REMAP_FAILURE) or vector(0)"),
        Panel(title="What nodes notice, an hour", queries={
            "{{kind}}": "3600 * sum by (kind) (rate(corral_signals_total[15m]))"}, stacked=True),
        Panel(title="Failed attempts an hour, by cause", queries={
            "{{cause}}": "3600 * sum by (cause) (rate(corral_attempts_failed_total[1h]))"},
              stacked=True),
        Panel(title="Last XID", queries={
            "{{Hostname}} {{gpu}}: {{err_msg}}": "DCGM_FI_DEV_XID_ERRORS > 0"}),
        Panel(title="Errors that ECC cannot correct", queries={
            "{{Hostname}} {{gpu}}": "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h]) > 0"}),
        Panel(title="PCIe retries", queries={
            "{{Hostname}} {{gpu}}": "topk(10, rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[15m]) > 0)"}),
        Panel(title="NVLink errors", queries={
            "{{Hostname}} {{gpu}}":
                "topk(10, rate(DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL[15m]) > 0)"}),
        Panel(title="Temperature, the ten hottest", unit="celsius", queries={
            "{{Hostname}} {{gpu}}": "topk(10, DCGM_FI_DEV_GPU_TEMP)"}),
        Panel(title="Tasks that wait for the disk", unit="percentunit", queries={
            "{{node}}": 'topk(10, corral_node_pressure_ratio{resource="io"})'}),
        Panel(title="Disks by what is free", unit="percentunit", queries={
            "{{node}} {{path}}":
                "bottomk(10, corral_node_disk_free_bytes / corral_node_disk_bytes)"}),
        Panel(title="Ports without a link", queries={
            "{{node}} {{port}}": "corral_node_port_up == 0"}),
        Panel(title="Clocks", unit="s", queries={
            "{{node}}": "topk(10, abs(corral_node_clock_offset_seconds))"}),
    ],
)  # fmt: skip

OF_SERVICE: Final = 'service=~"$service"'
TTFT: Final = f"vllm:time_to_first_token_seconds_bucket{{{OF_SERVICE}}}"
ITL: Final = f"vllm:inter_token_latency_seconds_bucket{{{OF_SERVICE}}}"


def quantiles(buckets: str) -> dict[str, str]:
    """Queries of three quantiles of a histogram, by service."""
    return {
        f"{{{{service}}}} p{100 * share:.0f}":
            f"histogram_quantile({share}, sum by (service, le) (rate({buckets}[5m])))"
        for share in (0.5, 0.9, 0.99)
    }  # fmt: skip


def rate_of(name: str, labels: str = "service") -> str:
    return f"sum by ({labels}) (rate(corral_service_{name}_total{{{OF_SERVICE}}}[5m]))"


SERVICES: Final = Dashboard(
    name="services",
    title="Corral: services",
    variables={"service": "label_values(corral_service_wanted, service)"},
    panels=[
        stat("Ready", f'sum(corral_service_replicas{{{OF_SERVICE}, state="ready"}})'),
        stat("Wanted", f"sum(corral_service_wanted{{{OF_SERVICE}}})"),
        stat("Requests a second",
             f"sum(rate(corral_service_requests_total{{{OF_SERVICE}}}[5m]))", "reqps"),
        stat("Failed", f"sum(rate(corral_service_failed_requests_total{{{OF_SERVICE}}}[5m])) / "
             f"sum(rate(corral_service_requests_total{{{OF_SERVICE}}}[5m]))", "percentunit",
             "Share of the requests whose answer was an error of the server."),
        stat("TTFT p90", f"histogram_quantile(0.9, sum by (le) (rate({TTFT}[5m])))", "s"),
        stat("Gateways report", f"min(corral_service_gateway_up{{{OF_SERVICE}}})",
             help="1 while a gateway reports to the head; 0 if none does."),
        Panel(title="Requests", unit="reqps", queries={
            "{{service}}": rate_of("requests")}),
        Panel(title="Requests that failed or were refused", unit="reqps", queries={
            "{{service}} failed": rate_of("failed_requests"),
            "{{service}} refused": rate_of("refused_requests"),
            "{{service}} attempts lost": rate_of("lost_attempts"),
            "{{service}} by the fallback": rate_of("fallback_requests")}),
        Panel(title="Time to first token", unit="s", queries={
            **quantiles(TTFT),
            "{{service}} target":
                f'corral_service_latency_target_seconds{{{OF_SERVICE}, kind="ttft_p90"}}'}),
        Panel(title="Time between tokens", unit="s", queries={
            **quantiles(ITL),
            "{{service}} target":
                f'corral_service_latency_target_seconds{{{OF_SERVICE}, kind="itl_p90"}}'}),
        Panel(title="Replicas", queries={
            "{{service}} wanted": f"corral_service_wanted{{{OF_SERVICE}}}",
            "{{service}} {{state}}": f"corral_service_replicas{{{OF_SERVICE}}}"}),
        Panel(title="Requests under way", queries={
            "{{service}}": f"corral_service_requests_under_way{{{OF_SERVICE}}}",
            "{{service}} of them wait": f"corral_service_requests_waiting{{{OF_SERVICE}}}"}),
        Panel(title="Tokens a second", queries={
            "{{service}} {{kind}}": rate_of("tokens", "service, kind")}),
        Panel(title="Prompt tokens that were cached", unit="percentunit", most=1, queries={
            "{{service}}":
                f"sum by (service) (rate(vllm:prefix_cache_hits_total{{{OF_SERVICE}}}[5m])) / "
                f"sum by (service) (rate(vllm:prefix_cache_queries_total{{{OF_SERVICE}}}[5m]))"}),
        Panel(title="Ejections, retries and streams lost, an hour", queries={
            "{{service}} {{event}}": "3600 * " + rate_of("gateway_events", "service, event")}),
        Panel(title="Revisions and canaries", queries={
            "{{service}} revision": f"corral_service_revision{{{OF_SERVICE}}}",
            "{{service}} canary: {{state}}": f"corral_service_canary{{{OF_SERVICE}}} > 0",
            "{{service}} failed starts": f"corral_service_failed_starts{{{OF_SERVICE}}}"}),
    ],
)  # fmt: skip

DASHBOARDS: Final = (CLUSTER, JOB, MONEY, HEALTH, SERVICES)


def written(dashboard: Dashboard) -> str:
    """The JSON that Grafana imports. Source: Grafana, "Dashboard JSON model", schema 39."""
    return json.dumps(
        {
            "uid": f"corral-{dashboard.name}",
            "title": dashboard.title,
            "tags": ["corral"],
            "schemaVersion": 39,
            "refresh": "10s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {
                "list": [_source(), *map(_variable, dashboard.variables.items())]
            },
            "panels": _placed(dashboard.panels),
        },
        indent=1,
    )


def _source() -> dict[str, Any]:
    return {
        "name": "source",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }


def _variable(variable: tuple[str, str]) -> dict[str, Any]:
    name, query = variable
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 4,
        **({"multi": True, "includeAll": True} if name in SEVERAL else {}),
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """From left to right, and down when a row is full."""
    found, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        found.append({"id": number, "gridPos": place, **_drawn(panel)})
        x, tallest = x + panel.width, max(tallest, panel.height)
    return found


def _drawn(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        mode = "normal" if panel.stacked else "none"
        fill = 30 if panel.stacked else 5
        defaults["custom"] = {
            "fillOpacity": fill,
            "stacking": {"mode": mode},
            "lineWidth": 1,
        }
    return {
        "title": panel.title,
        "type": panel.kind,
        "description": panel.help,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}} if panel.kind == "timeseries" else {},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def main() -> None:
    for dashboard in DASHBOARDS:
        (HERE / f"{dashboard.name}.json").write_text(written(dashboard) + "\n")


if __name__ == "__main__":
    main()
