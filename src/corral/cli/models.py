"""`corral model ls`, `pull` and `rm`."""

import time
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.error_output import DONE
from corral.cli.head_options import Change, Common, declined
from corral.cli.option_types import (
    EnvironmentVariable,
    ModelName,
    NodeName,
    SecretName,
)
from corral.cli.printing import age_text, note, print_json, say, show_table, table
from corral.cli.progress import progress
from corral.cli.spec_options import assignment
from corral.domain.content import split_revision
from corral.domain.units import share_text, size_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import model_answers as shapes

POLL_SECONDS: Final = 0.3
FAILED: Final = 1
SHORT_COMMIT: Final = 12  # characters of a revision in the table
_ALL = Parameter(name=["--all", "-a"], negative="", show_default=False)
_REPEATED = Parameter(negative="", show_default=False)


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the models that nodes keep, and those that they are fetching."""
    with common.client() as client:
        view = client.models()
    if common.json:
        print_json(view)
        return
    now = SystemClock().wall()
    rows = table(
        "NAME",
        "REVISION",
        "SIZE",
        "PINNED",
        "LAST USED",
        "NODES",
        right=("SIZE", "LAST USED"),
    )
    for model in view.models:
        name, revision = split_revision(model.name)
        rows.add_row(
            name,
            revision[:SHORT_COMMIT],
            size_text(model.size_bytes) if model.size_bytes else "",
            _pinned_text(model),
            _last_used_text(model, now),
            ", ".join(_node_text(node) for node in model.nodes),
        )
    show_table(rows)
    if not view.models:
        note("no node keeps a model; to fetch one, run: corral model pull MODEL")


def _pinned_text(model: "shapes.ModelView") -> str:
    pinned = sum(node.pinned for node in model.nodes)
    if not pinned:
        return "no"
    return "yes" if pinned == len(model.nodes) else f"{pinned} of {len(model.nodes)}"


def _last_used_text(model: "shapes.ModelView", now: float) -> str:
    if any(node.used for node in model.nodes):
        return "now"
    used_at = max((node.used_at or 0.0 for node in model.nodes), default=0.0)
    return f"{age_text(max(0.0, now - used_at))} ago" if used_at else ""


def _node_text(node: "shapes.ModelOnNode") -> str:
    if node.state == "there":
        return node.node
    share = node.done_bytes / node.size_bytes if node.size_bytes else 0.0
    return f"{node.node} ({share_text(share)})"


def pull(
    model: ModelName,
    /,
    *,
    node: Annotated[tuple[NodeName, ...], _REPEATED] = (),
    everywhere: Annotated[bool, _ALL] = False,
    pin: bool | None = None,
    secret: Annotated[tuple[SecretName, ...], _REPEATED] = (),
    env: Annotated[tuple[EnvironmentVariable, ...], _REPEATED] = (),
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Fetch a model onto nodes, and wait until it is there.

    Args:
        model: Where the model lies: hf://org/name@revision, s3://bucket/path or
            https://host/file#sha256=HASH.
        node: Fetch it onto this node; may be repeated (default: one node with room).
        everywhere: Fetch it onto all nodes.
        pin: Never evict it there, or with --no-pin let it be evicted again (default: as
            it is).
        secret: Secret that the source reads, such as HF_TOKEN; may be repeated.
        env: Variable that the source reads, such as HF_ENDPOINT; may be repeated.
    """
    with common.client() as client:
        request = client.pull_model(
            model,
            nodes=node,
            all_nodes=everywhere,
            pinned=pin,
            secrets=secret,
            env=dict(map(assignment, env)),
        )
        results = _wait_for(client, request, model, shown=not common.json)
    return _say_results(results, f"{model} is on", common)


def rm(
    model: ModelName,
    /,
    *,
    node: Annotated[tuple[NodeName, ...], _REPEATED] = (),
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Remove a model from nodes.

    Args:
        model: Name of the model as corral model ls lists it, or the beginning of
            NAME@REVISION, or where it lies.
        node: Remove it from this node; may be repeated (default: from all nodes).
    """
    if not common.agreed(f"remove {model}?", destroys=True):
        raise declined()
    with common.client() as client:
        request = client.remove_model(model, nodes=node)
        results = _wait_for(client, request, model, shown=not common.json)
    return _say_results(results, f"{model} is removed from", common)


def _wait_for(
    client: "Client", request: "shapes.ModelAsked", model: str, *, shown: bool
) -> "list[shapes.ModelResult]":
    """Return the results of the request, once all its nodes have one."""
    with progress(f"waiting for {', '.join(request.nodes)}", shown=shown) as work:
        while True:
            view = client.models()
            results = [
                result for result in view.results if result.request == request.request
            ]
            if {result.node for result in results} >= set(request.nodes):
                return results
            texts = [
                node.text
                for listed in view.models
                for node in listed.nodes
                if node.text and node.node in request.nodes and model in listed.sources
            ]
            work.doing = "; ".join(texts) or work.doing
            time.sleep(POLL_SECONDS)


def _say_results(
    results: "list[shapes.ModelResult]", done_text: str, common: Common
) -> int:
    """Print the results. Return the exit code: 1 if a node failed."""
    failed = [result for result in results if result.trouble]
    if common.json:
        print_json({"results": [result.model_dump(mode="json") for result in results]})
        return FAILED if failed else DONE
    done_nodes = sorted(result.node for result in results if not result.trouble)
    if done_nodes:
        say(f"{done_text} {', '.join(done_nodes)}")
    for result in failed:
        say(f"{result.node}: {result.trouble}", stderr=True)
    return FAILED if failed else DONE
