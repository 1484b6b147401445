"""What is said of a directory that some nodes or all of them see as empty."""

import pytest

from corral.cli.check_table import LISTING, failed_of, show_sameness
from corral.cli.doctor import _say_next
from corral.wire.active_checks import CheckedNode, CheckResult, Checkup


def checkup(*files: int | None) -> Checkup:
    """Nodes that see this number of files; None: they cannot read the directory."""
    return Checkup.model_construct(
        unable=[],
        nodes=[
            CheckedNode.model_construct(
                node=f"n{number}",
                results=[
                    CheckResult.model_construct(
                        kind="data",
                        result="passed" if count else "failed",
                        value=count,
                        unit="" if count is None else f"{LISTING}{count}",
                    )
                ],
            )
            for number, count in enumerate(files, 1)
        ],
    )


@pytest.mark.parametrize(
    ("files", "text", "fails"),
    [
        ((0, 0), "the directory has no files on any of the checked nodes", True),
        ((0,), "the directory has no files on any of the checked nodes", True),
        ((0, 7), "n1 sees no files in the directory: mount the directory there", True),
        ((None, 7), "n1 cannot read the directory: mount the directory there", True),
        ((7, 7), "all 2 nodes see the same files", False),
    ],
)
def test_an_empty_directory_is_told_from_one_that_cannot_be_read(
    files: tuple[int | None, ...],
    text: str,
    fails: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = checkup(*files)
    show_sameness(found)
    _say_next(found, "corral doctor data x")
    out = capsys.readouterr().out
    assert text in out
    assert ("cordon" in out) is (7 in files and fails)
    assert failed_of(found) is fails
