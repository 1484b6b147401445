"""The line at the end of a job that says what it wrote, and how to get it."""

from corral.cli.outputs import summary
from corral.wire.output_answers import NodeOutputs, OutputFileView, Outputs


def kept(node: str, *paths: str) -> NodeOutputs:
    files = [OutputFileView(path=path, bytes=10, modified_at=0.0) for path in paths]
    return NodeOutputs(
        node=node, ranks=[0], files=files, count=len(files), bytes=10 * len(files)
    )


def outputs(*nodes: NodeOutputs) -> Outputs:
    return Outputs(
        job="j5", name="train", attempt=1, kept_until=None, nodes=list(nodes)
    )


def test_the_command_copies_all_that_the_line_counts() -> None:
    one = "1 file (10 B) written in the work folder; get them: corral cp j5:model.pt ."
    assert summary(outputs(kept("n1", "model.pt"), kept("n2"))) == one
    several = "2 files (20 B) written in the work folder; get them: corral cp j5: ."
    assert summary(outputs(kept("n1", "model.pt", "log"))) == several
    assert summary(outputs(kept("n1"))) == ""


def test_of_several_nodes_the_command_is_that_of_one() -> None:
    assert summary(outputs(kept("n1", "model.pt"), kept("n2", "model.pt"))) == (
        "2 files (20 B) written in the work folder on n1, n2; "
        "get the files of one node: corral cp j5: ./n1 --node n1"
    )
