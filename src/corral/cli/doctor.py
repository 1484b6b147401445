"""The commands doctor gpu, doctor net and doctor data, which test nodes now and print
the results."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.check_table import (
    LISTING,
    failed_of,
    sees_files,
    show_checks,
    show_sameness,
)
from corral.cli.embedded_head import head_for
from corral.cli.error_output import DONE, JOB_FAILED, REFUSED, Usage
from corral.cli.head_options import Change
from corral.cli.option_types import Duration, NodeName, Seconds
from corral.cli.printing import note, print_json, say

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

LOOK_SECONDS: Final = 0.25
GPU: Final = ("matmul", "memory", "all-reduce", "disk", "clock")
Nodes = Annotated[
    tuple[NodeName, ...],
    Parameter(
        name="--node",
        negative="",
        show_default=False,
        help="Check only this node; may be repeated (default: all nodes).",
    ),
]
CheckSeconds = Annotated[
    Seconds,
    Parameter(name="--seconds", help="Duration of each long check, in seconds."),
]
MaxWait = Annotated[
    Duration,
    Parameter(
        name="--max-wait",
        help="How long to wait for a busy node to become idle, for example 60s or 2h; "
        "after that, the node is not checked.",
    ),
]


def gpu(
    *,
    node: Nodes = (),
    seconds: CheckSeconds = 5.0,
    max_wait: MaxWait = "60s",
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Test nodes: matrix products with a known hash, memory, all-reduce, disk and
    clock.

    A node is tested while no job runs on it; a failure closes it until a test passes or
    you run corral node clear.
    """
    return _run_node_checks("gpu", GPU, node, (), seconds, max_wait, common)


def net(
    *,
    node: Nodes = (),
    seconds: CheckSeconds = 5.0,
    max_wait: MaxWait = "60s",
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Test the links between nodes in a ring: each node with the next one.

    A slow link is reported with both its nodes; a node whose links are all slow is
    closed for new jobs.
    """
    return _run_node_checks(
        "net", ("link", "clock"), node, (), seconds, max_wait, common
    )


def data(
    path: str,
    /,
    *,
    node: Nodes = (),
    seconds: CheckSeconds = 5.0,
    max_wait: MaxWait = "60s",
    common: Change = Change(),  # noqa: B008 - frozen
) -> int:
    """Measure how fast each node reads a directory, and whether all nodes see the same
    content.

    Nothing is written to the directory.

    Args:
        path: Directory to read, as a path on the nodes.
    """
    from pathlib import Path

    data_path = (
        path if path.startswith("/") or common.remote else str(Path(path).absolute())
    )
    return _run_node_checks(
        f"data {path}", ("data",), node, (data_path,), seconds, max_wait, common
    )


def _run_node_checks(
    again: str,
    kinds: Sequence[str],
    nodes: Sequence[str],
    paths: Sequence[str],
    seconds: float,
    max_wait: str,
    common: Change,
) -> int:
    max_wait_seconds = _parse_patience(max_wait)
    with head_for(common), common.client() as client:
        begun = client.check_nodes(
            kinds,
            nodes=nodes,
            paths=paths,
            seconds=seconds,
            max_wait_seconds=max_wait_seconds,
        )
        checkup = _wait_for_checkup(client, begun, quiet=common.json)
    if common.json:
        print_json(checkup)
    else:
        show_checks(checkup)
        if paths:
            show_sameness(checkup)
        _say_next(checkup, f"corral doctor {again}")
    if failed_of(checkup):
        return JOB_FAILED
    return DONE if all(node.results for node in checkup.nodes) else REFUSED


def _wait_for_checkup(
    client: "Client", begun: "api.Checkup", *, quiet: bool
) -> "api.Checkup":
    """Wait until the check of each node has finished or was given up, and return all
    results."""
    shown_nodes: set[str] = set()
    checkup = begun
    while not checkup.is_over:
        for node in checkup.nodes:
            if (
                node.state == "waiting"
                and node.jobs
                and node.node not in shown_nodes
                and not quiet
            ):
                shown_nodes.add(node.node)
                note(
                    f"waiting until {node.node} is idle: it runs "
                    f"{', '.join(node.jobs[:3])}"
                )
        time.sleep(LOOK_SECONDS)
        now = {node.node: node for node in client.checkup(begun.id).nodes}
        over_update = {"state": "over"}
        nodes = [
            now.get(node.node) or node.model_copy(update=over_update)
            for node in checkup.nodes
        ]
        checkup = checkup.model_copy(update={"nodes": nodes})
    return checkup


def _say_next(found: "api.Checkup", again: str) -> None:
    """Print what to do next, depending on the result."""
    for node in found.nodes:
        bad = [
            check_result
            for check_result in node.results
            if check_result.result == "failed"
        ]
        if bad and all(failed_result.kind == "data" for failed_result in bad):
            sees_none = all(result.unit.startswith(LISTING) for result in bad)
            if sees_none and not sees_files(found):
                continue  # a line for all nodes is printed already
            problem = "sees no files in" if sees_none else "cannot read"
            say(
                f"{node.node} {problem} the directory: mount the directory there, or "
                f"run: corral node cordon {node.node}"
            )
        elif bad:
            repair_advice = f"after the repair, run: corral node clear {node.node}"
            say(
                f"{node.node} failed a check; for details, run: corral node show "
                f"{node.node}; {repair_advice}"
            )
        elif not node.results:
            skip_reason = (
                f"it is busy with {', '.join(node.jobs[:3])}"
                if node.jobs
                else "a job needed it"
            )
            say(
                f"{node.node} was not checked, because {skip_reason}; to wait longer, "
                f"run: {again} --node {node.node} --max-wait 2h"
            )
    if again == "corral doctor net" and len(found.nodes) < 2:
        say(
            "a link check needs two nodes; to let another machine join, run: corral "
            "node token"
        )
    if found.unable:
        say(
            "not checked, because no agent runs there permanently: "
            f"{', '.join(found.unable[:5])}"
        )


def _parse_patience(text: str) -> float:
    """Parse the duration of --max-wait, in seconds. Raises: Usage if it is not valid."""
    from corral.domain.units import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise Usage(
            f"--max-wait {text}: {error}", hint="for example: --max-wait 2h"
        ) from None
