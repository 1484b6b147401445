"""cp, outputs, and the line at the end of a job that says what it wrote."""

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
        source: JOB:PATH, with the path in the work folder; JOB: is the whole folder.
        to: Target. A file or folder goes into an existing folder under its own name.
        rank: From the node of this rank.
        node: From this node (the first that has it).
        attempt: This attempt (the newest).
    """
    job, colon, path = source.partition(":")
    if not colon or not job:
        raise SpecInvalid(
            f"{source[:200]} is not JOB:PATH",
            hint=f"write: corral cp {quote(source)}: .",
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
        job: Its id, or the newest of this name.
        attempt: This attempt (the newest).
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
                f"{node.node}: nothing is kept: nothing was written, or it was removed since"
            )
        elif node.count > len(node.files):
            note(
                f"{node.node}: {node.count:,} files, of which {len(node.files):,} are listed"
            )
    if text := summary(job_outputs):
        note(text)


def files_text(count: int, size: int) -> str:
    """For example: 3 files (12.4 MB)."""
    return f"{count:,} file{'s' * (count != 1)} ({size_text(size)})"


def summary(found: "Outputs") -> str:
    """Return what was written, how long it is kept and how to get it; "" where nothing
    was."""
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
            f"get those of a node: corral cp {quote(f'{found.job}:')} ./{first_node} --node "
            f"{first_node}"
        )
    return f"{written} written in the work folder{nodes_text}{kept_text}; {get}"


def _common_output_path(node: "NodeOutputs") -> str:
    """Return the one file, the folder that all are in, or nothing: all."""
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
    """Say what the job wrote. Its end counts more: trouble is passed over."""
    if text := _outputs_summary(client, job):
        note(text)


def outputs_text(client: "Client", job: "api.JobDetail") -> str:
    """Return the summary of the outputs of one job that ran and is over; "" for
    others."""
    if job.attempt == 0 or not job.is_over:
        return ""
    return _outputs_summary(client, job.id, SHOW_SECONDS)


def _outputs_summary(client: "Client", job: str, wait: float | None = None) -> str:
    """Return "" where there are no outputs, or they are another's."""
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
    """Return which nodes did not say what they keep; "" where all did."""
    mute = [node for node in found.nodes if node.trouble and node.is_kept]
    if not mute:
        return ""
    names = ", ".join(node.node for node in mute)
    return (
        f"what is kept on {names} is not known ({mute[0].trouble}); "
        f"try later: corral outputs {quote(found.job)}"
    )
