"""Bottleneck of a job, from its own step times and its GPUs' counters, with advice."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.units import duration_text, share_text
from corral.insight.data_wait import DataWaitParts
from corral.insight.link_use import LinkUse
from corral.insight.straggler import Straggler

DATA_SHARE: Final = 0.2  # of a step in which it waits for its data
SAVE_SHARE: Final = 0.1
WAIT_SHARE: Final = 0.25  # of a step in which ranks wait for each other
# of a link's rate from which it bounds: protocols leave 0.8 of it or so
LINK_SHARE: Final = 0.5
STALL_SECONDS: Final = 30.0  # without a step
STALL_STEPS: Final = 10.0  # usual steps in that time
# from which times of earlier steps say nothing about now: a rank may hang
QUIET_SECONDS: Final = 10.0
QUIET_STEPS: Final = 3.0
BUSY: Final = 0.8  # utilisation from which a GPU bounds it
NOTHING: Final = 0.05  # below, it is idle
LOW: Final = 0.5  # below, it is not kept busy


class BottleneckKind(StrEnum):
    STALLED = "stalled"
    DATA = "data"
    SAVES = "saves"
    COMMUNICATION = "communication"
    STRAGGLER = "straggler"
    SMALL_BATCH = "small-batch"
    COMPUTE = "compute"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Recent seconds of a job's training loop, as the median over its ranks.
    `wait_seconds` are included in `compute_seconds`. `utilisation` and `memory_share`
    are shares, from 0 to 1, of the job's GPUs. `link` is the traffic of the GPUs'
    links. `since_step_seconds` is the time since a rank made a step. None means not
    measured."""

    steps: int = 0
    data_seconds: float = 0.0
    compute_seconds: float = 0.0
    save_seconds: float = 0.0
    wait_seconds: float = 0.0
    utilisation: float | None = None
    memory_share: float | None = None
    link: LinkUse | None = None
    since_step_seconds: float | None = None
    data_parts: DataWaitParts = DataWaitParts()

    @property
    def is_stalled(self) -> bool:
        """Whether the job has made no step for far longer than a step takes."""
        return self._makes_no_step_for(STALL_SECONDS, STALL_STEPS)

    @property
    def is_quiet(self) -> bool:
        """Whether the job has made no step for longer than a step takes. GPUs that wait
        for another rank count as busy, so that they prove nothing then."""
        return self._makes_no_step_for(QUIET_SECONDS, QUIET_STEPS)

    def _makes_no_step_for(self, seconds: float, steps: float) -> bool:
        if self.since_step_seconds is None or not self.steps:
            return False
        total_seconds = self.data_seconds + self.compute_seconds + self.save_seconds
        usual_seconds = steps * total_seconds / self.steps
        return self.since_step_seconds >= max(seconds, usual_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The cause that limits the speed of a job's training loop. `text` names the cause,
    with the measured number that shows it. `advice` says what the user can try."""

    bound: BottleneckKind
    text: str
    advice: str


def bottleneck_of(
    spent: StepTimes,
    straggler: Straggler | None = None,
    node: str = "NODE",
    *,
    job: str,
    has_other_nodes: bool = True,
) -> Bottleneck | None:
    """Return the first bottleneck of the job that applies; None if nothing stands out,
    or too little is known.

    Args:
        spent: the recent times of the training loop.
        node: node of the straggler.
        job: the job's id, for a command in the advice.
        has_other_nodes: ranks of the job run on other nodes, too.
    """
    if spent.is_stalled:
        return _stalled(spent, job)
    if straggler is not None:
        return _straggling(straggler, node, has_other_nodes=has_other_nodes)
    if spent.is_quiet:
        return None
    total_seconds = spent.data_seconds + spent.compute_seconds + spent.save_seconds
    if total_seconds > 0 and spent.steps > 0:
        bottleneck = _of_loop(spent, total_seconds)
        if bottleneck is not None:
            return bottleneck
    return _of_gpus(spent, job)


def hung(text: str, job: str) -> Bottleneck:
    """Return the bottleneck of a job whose nodes report a hang, with this text."""
    return Bottleneck(
        bound=BottleneckKind.STALLED,
        text=text,
        advice=f"corral debug stacks {job}, which shows at which line each rank is",
    )


def _stalled(spent: StepTimes, job: str) -> Bottleneck:
    """Return the bottleneck of a job that makes no steps. It may be a hang, or a long
    save or evaluation: GPUs that wait for another rank count as busy."""
    assert spent.since_step_seconds is not None
    step_seconds = (spent.data_seconds + spent.compute_seconds) / spent.steps
    return Bottleneck(
        bound=BottleneckKind.STALLED,
        text=f"no rank has made a step for {duration_text(spent.since_step_seconds)}, "
        f"and a step took {_format_step_time(step_seconds)}",
        advice=f"corral debug stacks {job}, which shows at which line each rank is",
    )


def _straggling(one: Straggler, node: str, *, has_other_nodes: bool) -> Bottleneck:
    data_suffix = ", mostly in loading data" if one.in_data else ""
    if one.in_data:
        advice = "placing data equally near to all ranks, and in equal amounts"
    elif has_other_nodes:
        advice = f"another node: corral node show {node}, then corral node drain {node}"
    else:
        advice = f"corral node show {node}, which shows what else runs there"
    return Bottleneck(
        bound=BottleneckKind.STRAGGLER,
        text=f"rank {one.rank} on {node} needs {_format_step_time(one.seconds)} for its "
        "own part of a step, the other ranks need "
        f"{_format_step_time(one.others_seconds)} and wait for it "
        f"({share_text(one.slower)} slower{data_suffix})",
        advice=advice,
    )


def _of_loop(spent: StepTimes, whole: float) -> Bottleneck | None:
    data, saves = spent.data_seconds / whole, spent.save_seconds / whole
    wait = spent.wait_seconds / whole
    if data >= max(DATA_SHARE, wait, saves):
        return Bottleneck(
            bound=BottleneckKind.DATA,
            text=f"the job waits for data in {share_text(data)} of its time"
            f"{_data_wait_text(spent)}",
            advice=spent.data_parts.advice,
        )
    if saves >= max(SAVE_SHARE, wait):
        return Bottleneck(
            bound=BottleneckKind.SAVES,
            text=f"saving checkpoints stops the job for {share_text(saves)} of its time",
            advice="saving less often (checkpoint.interval: auto), or to a faster file "
            "system",
        )
    if wait >= WAIT_SHARE:
        return Bottleneck(
            bound=BottleneckKind.COMMUNICATION,
            text=f"the ranks wait for each other in {share_text(wait)} of their time"
            + (f"; {_link_traffic_text(spent.link)}" if spent.link is not None else ""),
            advice="more computation between exchanges (a larger batch, gradient "
            "accumulation), or fewer or nearer nodes (topology: require rack)",
        )
    return None


def _data_wait_text(spent: StepTimes) -> str:
    parts_text = spent.data_parts.text
    if not parts_text:
        return ""
    step_text = _format_step_time(spent.data_seconds / spent.steps)
    return f", {step_text} of each step: {parts_text}"


def _of_gpus(spent: StepTimes, job: str) -> Bottleneck | None:
    busy, memory = spent.utilisation, spent.memory_share
    if busy is None:
        return None
    if busy < NOTHING:
        return Bottleneck(
            bound=BottleneckKind.IDLE,
            text=f"the job's GPUs are idle: a kernel runs in {share_text(busy)} of the time",
            advice=f"releasing the GPUs: corral suspend {job}",
        )
    if spent.link is not None and spent.link.share >= LINK_SHARE:
        return _bound_by(spent.link)
    if busy < LOW:
        memory_text = (
            ""
            if memory is None
            else f", with {share_text(memory)} of their memory in use"
        )
        return Bottleneck(
            bound=BottleneckKind.SMALL_BATCH,
            text=f"the job's GPUs run a kernel in only {share_text(busy)} of the time"
            f"{memory_text}",
            advice="a larger batch, torch.compile or CUDA graphs, or fewer GPUs",
        )
    if busy >= BUSY:
        return Bottleneck(
            bound=BottleneckKind.COMPUTE,
            text=f"the job's GPUs compute in {share_text(busy)} of the time",
            advice="a lower precision, a faster type of GPU, or more GPUs",
        )
    return None


def _bound_by(link: LinkUse) -> Bottleneck:
    """Return the bottleneck for a job that this link slows. Kernels that wait for a
    link count as busy."""
    is_pcie = link.name.startswith("PCIe")
    return Bottleneck(
        bound=BottleneckKind.COMMUNICATION,
        text=_link_traffic_text(link),
        advice="keeping data on the GPU, pinned memory, less offloading, or GPUs with NVLink"
        if is_pcie
        else "exchanging fewer bytes (a lower precision, gradient accumulation, less tensor "
        "parallelism)",
    )


def _link_traffic_text(link: LinkUse) -> str:
    used_rate, max_rate = (
        f"{rate / 1e9:.0f}" for rate in (link.bytes_per_s, link.most_bytes_per_s)
    )
    share = share_text(link.share)
    return (
        f"the {link.name} of the job's GPUs carry {used_rate} of {max_rate} GB/s, {share} "
        "of their rate"
    )


def _format_step_time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
