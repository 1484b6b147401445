"""Answers of the HTTP API about the whole cluster."""

from typing import Self

from corral.domain import user_isolation as separation
from corral.domain.cluster_warning import ClusterWarning
from corral.wire.job_parts import ForecastView
from corral.wire.node_answers import NodeView


class HeadView(ForecastView):
    pid: int
    url: str
    version: str
    started_at: float


class OneHead(ForecastView):
    """One of several heads. Each second the head reports that it is alive."""

    name: str
    url: str
    leads: bool
    silent_seconds: float


class ClusterView(ForecastView):
    id: str
    engine: str
    term: int


class Gpus(ForecastView):
    """Numbers of GPUs of the cluster. `free`: GPUs that a job could get now, on nodes
    that accept work."""

    total: int
    free: float
    used: float
    away: int  # on nodes that are silent, dead, cordoned, draining or closed
    taken: int = 0  # by programs that Corral has not started, on nodes that take work
    pretend: int = 0  # of all, those that are pretend GPUs


class UserIsolationView(ForecastView):
    """How users are isolated from each other on these nodes.

    `means`: own_accounts, pods, one_account or privileged_pods. `account`: the account
    that the ranks of all users share; "" if each user has an account. `shared`: the
    ways in which users can still reach each other. `text`: a sentence about the
    isolation.
    """

    nodes: list[str]
    means: str
    account: str
    shared: list[str]
    text: str

    @classmethod
    def of(cls, found: separation.UserIsolation, nodes: list[str]) -> Self:
        return cls(
            nodes=nodes,
            means=found.means,
            account=found.account,
            shared=list(found.shared),
            text=found.text,
        )


class WarningView(ForecastView):
    """A warning of the head. `code`: one of docs/reference/codes.md. `node`: the node
    that the warning concerns, if any."""

    code: str
    text: str
    node: str | None = None

    @classmethod
    def of(cls, warning: ClusterWarning) -> Self:
        return cls(code=warning.code, text=warning.text, node=warning.node)


class GatewayView(ForecastView):
    """The gateway to the services. `url`: its address; for OpenAI clients, add /v1."""

    url: str


class Status(ForecastView):
    """State of the cluster. `jobs` counts unfinished jobs by state. `heads` is empty if
    the cluster can have only one head. `separation`: how users are isolated on the
    nodes that are alive. `gateway`: null while there is no service."""

    head: HeadView
    cluster: ClusterView
    nodes: list[NodeView]
    gpus: Gpus
    jobs: dict[str, int]
    warnings: list[WarningView]
    heads: list[OneHead] = []
    separation: list[UserIsolationView] = []
    gateway: GatewayView | None = None
