"""/metrics: what Prometheus reads is whole, true, and named as people's dashboards name
it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_open,
)
from prometheus_client.parser import text_string_to_metric_families as read_plain

from corral.api.metrics.accept import wants_open_metrics
from corral.api.metrics.device_series import GPUS, XIDS
from corral.api.metrics.devices import gpu_families
from corral.api.metrics.families import MetricFamily
from corral.api.metrics.goodput import goodput, gpu_seconds
from corral.control.counters import HeadCounters, Histogram
from corral.domain.attempt import Exit
from corral.domain.ids import NodeId, QueueName, UserName
from corral.domain.ledger import UsageAmounts, UsageRecord
from corral.domain.node import Liveness
from corral.domain.node_fault import NodeCondition
from corral.domain.node_signal import SignalKind
from corral.domain.telemetry import (
    DiskSample,
    GpuSample,
    NodeSample,
    NvLink,
    PortSample,
)
from corral.domain.world import Changes
from corral.insight.reports import UsageReport, UsageRow
from tests.api.heads import Agent, Head, ended, eventually, serving, up
from tests.worlds import Cluster, gang, node

ALICE = UserName("alice")
OPEN = "application/openmetrics-text"
PROMETHEUS = (  # the header of version 2.42
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
    "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"
# What dcgm-exporter tells unless it is told otherwise (etc/default-counters.csv), but
# for the licence of virtual GPUs.
EXPORTERS_LIST = {
    f"DCGM_FI_DEV_{name}"
    for name in (
        *("SM_CLOCK", "MEM_CLOCK", "MEMORY_TEMP", "GPU_TEMP", "POWER_USAGE"),
        *("TOTAL_ENERGY_CONSUMPTION", "PCIE_TX_THROUGHPUT", "PCIE_RX_THROUGHPUT"),
        *("PCIE_REPLAY_COUNTER", "GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL"),
        *("XID_ERRORS", "FB_FREE", "FB_USED", "NVLINK_BANDWIDTH_TOTAL"),
        *(
            "UNCORRECTABLE_REMAPPED_ROWS",
            "CORRECTABLE_REMAPPED_ROWS",
            "ROW_REMAP_FAILURE",
        ),
    )
}

GPU = GpuSample(
    index=0,
    uuid='GPU-"1"\\',
    type="h100",
    utilisation=0.875,
    memory_used_bytes=3 * 2**20,
    memory_total_bytes=10 * 2**20,
    energy_joules=12.5,
    nvlinks=(
        NvLink(link=0, up=True, crc_errors=2),
        NvLink(link=1, up=True, crc_errors=3),
    ),
)
SAMPLE = NodeSample(
    at=1.0,
    cpu_utilisation=0.25,
    pressure_io=0.5,
    gpus=(GPU, GpuSample(index=1, uuid="GPU-2", silent=True)),
    ports=(
        PortSample(name="mlx5_0:1", kind="infiniband", up=True, bits_per_second=4e11),
    ),
    disks=(
        DiskSample(path="/a", total_bytes=9, free_bytes=4),
        DiskSample(path="/b", silent=True),
    ),
)


@pytest.fixture
def agent(head: Head) -> Iterator[Agent]:
    agent = Agent(head, "n1").hello()
    agent.beat()
    yield agent
    agent.close()


def values(text: str, *, open: bool = True) -> dict[tuple[str, tuple[str, ...]], float]:
    """Each series by name and the values of its labels."""
    read = read_open if open else read_plain
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in read(text)
        for sample in family.samples
    }


def test_the_head_tells_jobs_and_queues_and_gpus_of_who_holds_them(
    head: Head, agent: Agent
) -> None:
    control = head.control
    head.run(control.submit([gang("held", gpus=1)], key="", by="alice"))  # type: ignore[arg-type]
    eventually(
        lambda: any(job.state == "STARTING" for job in control.world.jobs.values())
    )
    job = next(job for job in control.world.jobs.values() if job.spec.name == "held")
    agent.beat(up((job.id, 1)))
    eventually(lambda: control.world.jobs[job.id].state == "RUNNING")
    control.sensed.take(NodeId("n1"), SAMPLE, 1.0)
    with head.http("vera") as http:
        answer = http.get("/metrics", headers={"Accept": OPEN})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    found = values(answer.text)
    assert found["corral_jobs", ("default", "RUNNING")] >= 1
    assert found["corral_attempts_started_total", ("default",)] >= 1
    assert found["corral_wait_seconds_count", ("default",)] >= 1
    assert found["corral_node_port_up", ("n1", "mlx5_0:1", "infiniband")] == 1
    held = control.world.attempts[job.id].seats[0].gpus[0]
    who = (str(job.id), "alice", "default") if held == 0 else ("", "", "")
    first = ("0", 'GPU-"1"\\', "nvidia0", "h100", "n1", *who)
    assert found["DCGM_FI_DEV_GPU_UTIL", first] == 87.5
    assert found["DCGM_FI_DEV_FB_FREE", first] == 7
    assert found["DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", first] == 5


def test_what_came_of_held_gpus_is_told_by_queue_and_the_share_that_was_useful(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as head, head.http("vera") as http:
        control, agent = head.control, Agent(head, "n1").hello()
        agent.beat()
        head.run(control.submit([gang("useful", gpus=1)], key="", by=ALICE))
        eventually(
            lambda: any(job.state == "STARTING" for job in control.world.jobs.values())
        )
        id = next(iter(control.world.jobs))
        agent.beat(up((id, 1)))
        eventually(lambda: control.world.jobs[id].state == "RUNNING")
        during = values(http.get("/metrics", headers={"Accept": OPEN}).text)
        exit = Exit(code=0, at=control.now().wall)
        agent.beat(replace(ended((id, 1)), exits=((0, exit),)))
        eventually(lambda: control.world.state_of(id) == "DONE")
        after = values(http.get("/metrics", headers={"Accept": OPEN}).text)
        agent.close()
    assert during["corral_queue_goodput_ratio", ("default",)] <= 1
    assert during["corral_queue_recent_gpu_seconds", ("useful", "default")] > 0
    assert ("corral_gpu_seconds_total", ("useful", "default")) not in during
    assert after["corral_gpu_seconds_total", ("useful", "default")] > 0
    assert after["corral_gpu_seconds_total", ("failures", "default")] == 0
    assert 0 < after["corral_goodput_ratio", ()] <= 1


def test_goodput_is_what_was_useful_of_what_was_held_and_idle_is_what_sensors_say() -> (
    None
):
    lost = UsageAmounts(
        allocated_gpu_seconds=100.0, useful_gpu_seconds=60.0, failed_gpu_seconds=30.0
    )
    rows = (
        UsageRow(name="a", amounts=lost),
        UsageRow(name="b", amounts=UsageAmounts(useful_gpu_seconds=1.0)),
    )
    found = UsageReport(kind="goodput", by="queue", rows=rows, total=lost, days=())
    told = told_by(goodput(found))
    assert told["corral_queue_goodput_ratio", ("a",)] == 0.6
    assert ("corral_queue_goodput_ratio", ("b",)) not in told, (
        "of nothing there is no share"
    )
    assert told["corral_queue_recent_gpu_seconds", ("a", "failures")] == 30.0
    assert told["corral_queue_recent_gpu_seconds", ("a", "other")] == 10.0
    counts, sensed = (
        HeadCounters(),
        UsageAmounts(measured_gpu_seconds=9.0, idle_gpu_seconds=4.0),
    )
    cluster = Cluster(node("n1"))
    for amounts in (lost, sensed, sensed):
        one = UsageRecord(
            day=1, queue=QueueName("a"), user=ALICE, gpu_type="h100", amounts=amounts
        )
        counts.take_in(cluster.world, Changes(accounts=(one,)))
    told = told_by(gpu_seconds(counts.amounts))
    assert told["corral_gpu_seconds_total", ("a", "failures")] == 30.0
    assert told["corral_sensed_gpu_seconds_total", ("a", "idle")] == 8.0


def told_by(
    families: Iterable[MetricFamily],
) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (f"{metric.name}{one.suffix}", tuple(one.labels.values())): one.value
        for metric in families
        for one in metric.samples
    }


def test_the_text_format_is_the_default_and_has_its_counters(
    head: Head, agent: Agent
) -> None:
    head.control.sensed.take(NodeId("n1"), SAMPLE, 1.0)
    with head.http("vera") as http:
        answer = http.get("/metrics", headers={"Accept": "*/*"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds = {family.name: family.type for family in read_plain(answer.text)}
    assert kinds["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "counter"


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("", False),
        ("*/*", False),
        (BROWSER, False),
        ("application/json", False),
        ("application/*", False),
        ("text/plain;version=0.0.4;q=0.5", False),
        (OPEN, True),
        (PROMETHEUS, True),
        ("application/openmetrics-text;q=0.5, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0.5, */*", False),
        ("application/openmetrics-text;q=0.5, */*, text/plain;q=0.1", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        ("application/openmetrics-text; version=9.0.0", False),
        ("Application/OpenMetrics-Text; Version=1.0.0", True),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept: str, is_open: bool) -> None:
    assert wants_open_metrics(accept) == is_open


def test_nobody_reads_metrics_without_a_token(head: Head) -> None:
    with head.http(None) as http:
        assert http.get("/metrics").status_code == 401


def test_engine_activity_is_the_drivers_and_its_utilisation_where_there_is_none() -> (
    None
):
    cluster, n1 = Cluster(node("n1")), NodeId("n1")
    active = replace(GPU, graphics_active=0.75, tensor_active=0.5)
    sample = replace(SAMPLE, gpus=(active, replace(GPU, index=1)))
    text = "".join(gpu_families(cluster.world, {n1: sample}, counters=True))
    found = {
        (name, labels[0]): value
        for (name, labels), value in values(text, open=False).items()
    }
    assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0"] == 0.75
    assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "1"] == 0.875
    assert found["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "0"] == 0.5
    assert ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "1") not in found


def test_what_a_silent_node_said_last_is_not_told_and_what_is_not_known_is_no_zero() -> (
    None
):
    cluster = Cluster(node("n1"), node("n2"))
    one, two = NodeId("n1"), NodeId("n2")
    cluster.world.nodes[two] = node("n2").__class__(id=two, liveness=Liveness.SILENT)
    text = "".join(
        gpu_families(cluster.world, {one: SAMPLE, two: SAMPLE}, counters=True)
    )
    assert 'Hostname="n1"' in text
    assert 'Hostname="n2"' not in text
    assert "DCGM_FI_DEV_SM_CLOCK" not in text


def xid(
    code: int, gpu: int, last: float, mended_at: float | None = None
) -> NodeCondition:
    return NodeCondition(
        kind=SignalKind.XID, code=code, gpu=gpu, device="", text=f"XID {code}", since=1.0,
        last=last, mended_at=mended_at,
    )  # fmt: skip


def test_the_last_xid_of_a_gpu_is_told_with_its_meaning_and_0_where_there_was_none() -> (
    None
):
    cluster, n1 = Cluster(node("n1")), NodeId("n1")
    ills = (xid(94, 0, 5.0), xid(31, 0, 9.0), xid(79, 1, 2.0, 3.0))
    cluster.world.nodes[n1] = replace(cluster.world.nodes[n1], conditions=ills)
    sample = replace(SAMPLE, gpus=(*SAMPLE.gpus, GpuSample(index=2, uuid="amd-n1-2")))
    text = "".join(gpu_families(cluster.world, {n1: sample}, counters=True))
    lines = [
        line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_XID_ERRORS{")
    ]
    assert len(lines) == 2, "AMD's driver tells no XIDs"
    assert lines[0].endswith(
        'err_code="31",err_msg="MMU fault: an address that is not mapped"} 31'
    )
    assert lines[1].endswith('err_code="0",err_msg="No Error"} 0'), (
        "what is mended was before"
    )
    assert list(values(text, open=False).values())[-2:] == [31.0, 0.0]


def test_all_that_the_exporter_tells_by_itself_has_a_series() -> None:
    told = {one.name for one in GPUS} | {XIDS}
    assert told >= EXPORTERS_LIST


def test_a_gpu_that_two_share_has_both_their_names() -> None:
    cluster = Cluster(node("n1", gpus=1))
    for name in ("a", "b"):
        cluster.up(cluster.submit(gang(name, gpus=0)))
    jobs = list(cluster.world.allocations.values())
    for row in jobs:
        seat = row.seat.__class__(node=row.seat.node, gpus=(0,), gpu_millis=500)
        cluster.world.allocations[row.key] = row.__class__(
            job=row.job, attempt=row.attempt, seat=seat
        )
    text = "".join(gpu_families(cluster.world, {NodeId("n1"): SAMPLE}, counters=True))
    assert 'job="j1,j2"' in text


def test_a_bucket_holds_what_is_at_most_its_bound() -> None:
    waits = Histogram((1.0, 5.0))
    for seconds in (0.5, 1.0, 3.0, 9.0):
        waits.add(seconds)
    assert waits.cumulative() == [("1.0", 2.0), ("5.0", 3.0), ("+Inf", 4.0)]
    assert waits.total == 13.5
