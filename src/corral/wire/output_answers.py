"""Shapes of outputs: files that an attempt wrote into its work folders. Times since
1970."""

from corral.domain.outputs import OutputListing
from corral.wire.job_parts import ForecastView


class OutputFileView(ForecastView):
    """One file; `path` is below the work folder."""

    path: str
    bytes: int
    modified_at: float


class NodeOutputs(ForecastView):
    """Outputs on one node. `files`: at most 1,000; `count` and `bytes` are of all.
    `is_whole`: every file was counted. `is_kept` False: nothing was written, or it was
    removed since. `trouble`: why nothing is known; "" otherwise."""

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
    """`kept_until`: when the files are removed at the latest; None while the attempt
    runs."""

    job: str
    name: str
    attempt: int
    kept_until: float | None
    nodes: list[NodeOutputs]
