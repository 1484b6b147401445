"""Answers about outputs, which are files that an attempt wrote into its work folders.
Times are seconds since 1970."""

from corral.domain.outputs import OutputListing
from corral.wire.job_parts import ForecastView


class OutputFileView(ForecastView):
    """One output file; `path` is relative to the work folder."""

    path: str
    bytes: int
    modified_at: float


class NodeOutputs(ForecastView):
    """Outputs of an attempt on one node. `files`: at most 1,000; `count` and `bytes`
    cover all files. `is_whole`: every file was counted. `is_kept` False: nothing was
    written, or the files have been removed. `trouble`: why the outputs are unknown; ""
    otherwise."""

    node: str
    ranks: list[int]
    files: list[OutputFileView] = []
    count: int = 0
    bytes: int = 0
    is_whole: bool = True
    is_kept: bool = True
    trouble: str = ""

    @classmethod
    def of(cls, node: str, ranks: range, listing: OutputListing) -> "NodeOutputs":
        files = [OutputFileView(**file._asdict()) for file in listing.files]
        return cls(
            node=node,
            ranks=list(ranks),
            files=files,
            count=listing.count,
            bytes=listing.bytes,
            is_whole=listing.is_whole,
        )


class Outputs(ForecastView):
    """Outputs of an attempt. `kept_until`: the latest time at which the files are
    removed; None while the attempt runs."""

    job: str
    name: str
    attempt: int
    kept_until: float | None
    nodes: list[NodeOutputs]
