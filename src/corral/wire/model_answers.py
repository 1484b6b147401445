"""Requests and answers of the HTTP API about models on nodes. Times are wall-clock
seconds since 1970."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corral.wire.job_parts import ForecastView
from corral.wire.model_source import MOST_CHARACTERS

_ASKED = ConfigDict(extra="forbid", strict=True, frozen=True)
Source = Annotated[str, Field(min_length=1, max_length=MOST_CHARACTERS)]
MOST_NAMES = 1_000


class ModelPull(BaseModel):
    """Request to fetch a model onto nodes.

    `nodes`: their names; empty: one node that has room. `all_nodes`: every node that is
    alive. `pinned`: true: it is never evicted there; false: it may be; null: unchanged.
    `secrets`: names of secrets that its source reads, such as HF_TOKEN; `env`:
    variables, such as HF_ENDPOINT.
    """

    model_config = _ASKED

    source: Source
    nodes: Annotated[list[str], Field(max_length=MOST_NAMES)] = []
    all_nodes: bool = False
    pinned: bool | None = None
    secrets: Annotated[list[str], Field(max_length=16)] = []
    env: Annotated[dict[str, str], Field(max_length=16)] = {}


class ModelRemove(BaseModel):
    """Request to remove a model from nodes. `name`: its name or a source that led to
    it. `nodes` empty: from all nodes."""

    model_config = _ASKED

    name: Source
    nodes: Annotated[list[str], Field(max_length=MOST_NAMES)] = []


class ModelOnNode(ForecastView):
    """A model on one node. `state`: there, or fetching. `text`: how far the fetch is.
    `used`: an attempt uses it now."""

    node: str
    state: str
    used: bool = False
    pinned: bool = False
    used_at: float | None = None
    done_bytes: int
    size_bytes: int
    text: str = ""


class ModelView(ForecastView):
    """A model that nodes have or are fetching. `sources`: sources that led to it."""

    name: str
    sources: list[str]
    nodes: list[ModelOnNode]

    @property
    def size_bytes(self) -> int:
        """Return the size of all its files; 0 while it is not known."""
        return max((node.size_bytes for node in self.nodes), default=0)


class ModelResult(ForecastView):
    """End of a request on a node. `trouble`: why it failed; empty if it did not."""

    request: str
    node: str
    source: str
    trouble: str


class ModelNodeView(ForecastView):
    """Space that the models of one node take on its disk."""

    node: str
    used_bytes: int
    most_bytes: int


class ModelsView(ForecastView):
    models: list[ModelView]
    results: list[ModelResult]
    nodes: list[ModelNodeView]


class ModelAsked(ForecastView):
    """The nodes to which a request was sent, and its id."""

    request: str
    nodes: list[str]
