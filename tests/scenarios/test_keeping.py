"""Jobs that are over are forgotten with all that they left behind, also after a
crash."""

import pytest

from corral.domain.errors import CorralError
from tests.scenarios.house import House, house, until


def test_what_is_more_than_is_kept_goes_from_the_head_with_its_logs() -> None:
    with house("--nodes", "1", "--gpus", "0", "--keep-jobs", "1") as here:
        first, *others = (
            here.submit(f"says-{number}", "echo so") for number in range(3)
        )
        for id in (first, *others):
            until(lambda id=id: is_over(here, id), f"{id} is over")  # type: ignore[misc]
        logs = here.root / "logs"
        until(lambda: not (logs / first).exists(), "the logs of the first are gone")
        shown = here.corral("show", first)
        assert shown.returncode == 3
        assert f"there is no job {first}: it was deleted" in shown.stderr
        (logs / first).mkdir()  # as a crash between the commit and the sweep leaves it
        here.kill_head()
        here.up()
        until(lambda: not (logs / first).exists(), "what was left is gone")
        last = here.submit("last", "echo still")
        until(lambda: is_over(here, last), "the last is over")
        assert here.logs(last) == "still\n"
        left = here.root / "nodes" / "n1" / "attempts"
        until(lambda: not list(left.iterdir()), "nothing of them is on the node")


def is_over(here: House, id: str) -> bool:
    """Also when it is forgotten already."""
    try:
        return here.job(id).is_over
    except CorralError as error:
        return error.code == "forgotten"


@pytest.mark.parametrize("words", [["--keep-days", "0"], ["--keep-jobs", "-1"]])
def test_a_head_that_keeps_nothing_is_refused(words: list[str]) -> None:
    with house() as here:
        refused = here.corral("up", *words)
        assert refused.returncode == 3
        assert f"corral up {words[0]}" in refused.stderr
