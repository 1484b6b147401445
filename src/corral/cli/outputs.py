"""The commands cp and outputs, and the line at the end of a job that lists the files it
wrote."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from corral.cli.head_options import Common, Count, Ordinal
from corral.cli.option_types import NodeName
from corral.cli.printing import note, print_json, show_table, table
from corral.domain.errors import CorralError, SpecInvalid
from corral.domain.time_point import moment_text
from corral.domain.units import size_text

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api
    from corral.wire.output_answers import NodeOutputs, Outputs


SHOW_SECONDS = 1.5  # that a node may take to answer where all else is shown already


def cp(
    source: str,
    to: Path,
    /,
    *,
    rank: Count | None = None,
    node: NodeName | None = None,
    attempt: Ordinal | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Copy a file or folder of a job's work folder to this machine.

    Args:
        source: JOB:PATH, where PATH is relative to the job's work folder; JOB: without
            PATH copies the whole folder.
        to: Path of the copy on this machine. If it is an existing folder, the copy is
            placed in it under its own name.
        rank: Copy from the node of this rank; ranks count from 0.
        node: Copy from this node (default: the first node that has the file).
        attempt: Number of the attempt; attempts count from 1 (default: the newest).
    """
    job, colon, path = source.partition(":")
    if not colon or not job:
        raise SpecInvalid(
            f"{source[:200]} is not of the form JOB:PATH",
            hint=f"to copy the whole work folder, run: corral cp {quote(source)}: .",
        )
    with common.client() as client:
        done = client.fetch(
            job, path, to.expanduser(), attempt=attempt, node=node, rank=rank
        )
    if common.json:
        print_json({"path": str(done.path), "files": done.files, "bytes": done.bytes})
    else:
        note(f"{files_text(done.files, done.bytes)} copied to {done.path}")


def outputs(
    job: str,
    /,
    *,
    attempt: Ordinal | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List the files that a job wrote into its work folder, on each of its nodes.

    Args:
        job: Id or name of a job; if several jobs have the name, the newest one.
        attempt: Number of the attempt; attempts count from 1 (default: the newest).
    """
    with common.client() as client:
        job_outputs = client.outputs(job, attempt=attempt)
    if common.json:
        print_json(job_outputs)
        return
    rows = table("PATH", "SIZE", "WRITTEN", "NODE", right=("SIZE",))
    for node in job_outputs.nodes:
        for file in node.files:
            rows.add_row(
                file.path,
                size_text(file.bytes),
                moment_text(file.modified_at),
                node.node,
            )
    if rows.row_count:
        show_table(rows)
    for node in job_outputs.nodes:
        if node.trouble:
            note(node.trouble)
        elif not node.is_kept:
            note(
                f"{node.node}: no files are kept: the job wrote none there, or they "
                "were removed"
            )
        elif node.count > len(node.files):
            note(f"{node.node}: {len(node.files):,} of {node.count:,} files are listed")
    if text := summary(job_outputs):
        note(text)


def files_text(count: int, size: int) -> str:
    """Return the number and size of files, for example: 3 files (12.4 MB)."""
    return f"{count:,} file{'s' * (count != 1)} ({size_text(size)})"


def summary(found: "Outputs") -> str:
    """Return a summary of the files that a job wrote, how long they are kept and how to
    copy them; "" if the job wrote none."""
    having = [node for node in found.nodes if node.count]
    if not having:
        return ""
    written = files_text(
        sum(node.count for node in having), sum(node.bytes for node in having)
    )
    nodes_text = (
        f" on {', '.join(node.node for node in having)}" if len(having) > 1 else ""
    )
    kept_text = (
        f"; kept until {moment_text(found.kept_until)}"
        if found.kept_until is not None
        else ""
    )
    get = f"get them: corral cp {quote(f'{found.job}:{_common_output_path(having[0])}')} ."
    if len(having) > 1:  # one copy is of one node
        first_node = having[0].node
        get = (
            "get the files of one node: corral cp "
            f"{quote(f'{found.job}:')} ./{first_node} --node {first_node}"
        )
    return f"{written} written in the work folder{nodes_text}{kept_text}; {get}"


def _common_output_path(node: "NodeOutputs") -> str:
    """Return the path that covers all output files of the node: the only file, or the
    one folder that holds all of them. "" if there is no such path."""
    paths = [file.path for file in node.files]
    if len(paths) == 1:
        return paths[0]
    folders = {path.partition("/")[0] for path in paths if "/" in path}
    return (
        folders.pop()
        if len(folders) == 1 and all("/" in path for path in paths)
        else ""
    )


def note_outputs(client: "Client", job: str) -> None:
    """Print a note about the files that the job wrote. Errors are ignored, because the
    command reports the end of the job, which is more important."""
    if text := _outputs_summary(client, job):
        note(text)


def outputs_text(client: "Client", job: "api.JobDetail") -> str:
    """Return the summary of the outputs of a job that ran and is over; "" for other
    jobs."""
    if job.attempt == 0 or not job.is_over:
        return ""
    return _outputs_summary(client, job.id, SHOW_SECONDS)


def _outputs_summary(client: "Client", job: str, wait: float | None = None) -> str:
    """Return the summary of a job's outputs; "" if there are none, or the head refuses
    to list them. `wait`: seconds to wait for the nodes' lists."""
    try:
        job_outputs = client.outputs(job, wait=wait)
    except CorralError:
        return ""
    trouble_texts = (
        node.trouble for node in job_outputs.nodes if node.trouble and not node.is_kept
    )
    return "; ".join(
        filter(
            None,
            (
                summary(job_outputs) or next(trouble_texts, ""),
                unknown_text(job_outputs),
            ),
        )
    )


def unknown_text(found: "Outputs") -> str:
    """Return text about the nodes that did not report which output files they keep; ""
    if all nodes did."""
    mute = [node for node in found.nodes if node.trouble and node.is_kept]
    if not mute:
        return ""
    names = ", ".join(node.node for node in mute)
    return (
        f"the files kept on {names} are not known ({mute[0].trouble}); "
        f"to try again later, run: corral outputs {quote(found.job)}"
    )
