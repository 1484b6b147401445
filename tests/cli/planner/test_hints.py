"""What a refusal advises can be typed as it stands."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.catalog.carbon import region
from corral.catalog.devices import device
from corral.catalog.economics import assume
from corral.catalog.equipment import network, switch
from corral.catalog.links import link
from corral.catalog.model_names import model
from corral.catalog.prices import prices
from corral.cli.command_tree import COMMANDS
from corral.cli.examples import EXAMPLES as SHOWN
from corral.cli.main import run
from corral.domain.errors import NotFound
from corral.perf.software import software

ROOT = Path(__file__).parents[3]
COMMAND = re.compile(r"corral plan catalog ([a-z_]+)")
LOOKUPS: dict[str, Callable[[str], object]] = {
    "region": region,
    "device": device,
    "assumption": lambda name: assume({name: 1.0}),
    "network": network,
    "switch": switch,
    "link": link,
    "model": model,
    "price": prices().typical,
    "software": software,
}


def told() -> Iterator[tuple[str, str]]:
    """The kinds of the catalog that the code and the pages name, and where."""
    pages = [
        *(ROOT / "src/corral").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
    ]
    for page in pages:
        for kind in COMMAND.findall(page.read_text(encoding="utf-8")):
            yield kind, page.name


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in told()}))
def test_every_kind_of_the_catalog_that_is_named_somewhere_can_be_listed(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "catalog", kind]) == 0, [
        page for one, page in told() if one == kind
    ]
    assert capsys.readouterr().out


EXAMPLES = [
    line.split(" > ")[0].removeprefix("corral ")
    for command, lines in SHOWN.items()
    if command.startswith("plan ")
    for line in lines
]
HISTORY = "submit_s,duration_s,gpus\n" + "".join(
    f"{hour * 3600},1800,{1 + hour % 8}\n" for hour in range(24 * 14)
)
TABLE = "model,gpu,n_gpus,seq_len,step_time_s\nllama-3.1-8b,h100,64,8192,5\n"


def test_every_plan_of_something_has_an_example_in_its_help() -> None:
    named = {" ".join(words.split()[:2]) for words in EXAMPLES}
    assert named == {one.name for one in COMMANDS if one.name.startswith("plan ")}


@pytest.mark.parametrize("words", EXAMPLES)
def test_every_example_of_the_help_runs(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(TABLE)
    (tmp_path / "jobs.csv").write_text(HISTORY)
    assert run(words.split()) == 0


@pytest.mark.parametrize("of", LOOKUPS)
def test_a_name_that_nobody_has_is_answered_with_a_list_that_can_be_shown(
    of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotFound) as refused:
        LOOKUPS[of]("qqqqqq")
    (kind,) = COMMAND.findall(refused.value.hint)
    assert run(["plan", "catalog", kind]) == 0
    assert capsys.readouterr().out
