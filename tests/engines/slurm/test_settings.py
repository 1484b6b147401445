"""What `corral up --engine slurm --set NAME=VALUE` takes."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.engines.slurm.settings import SlurmSettings


def test_settings_are_read_as_they_are_typed() -> None:
    given = {
        "partition": "gpu",
        "pretend": "yes",
        "options": "--nice=5; --wckey=x",
        "account": "",
    }
    read = SlurmSettings.read({**given, "command_seconds": "5"})
    assert (read.partition, read.pretend, read.account) == ("gpu", True, None)
    assert read.lines == ("--nice=5", "--wckey=x")
    assert read.command_seconds == 5.0


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("partitoin", "gpu", "no setting 'partitoin'"),
        ("pretend", "perhaps", "yes or no"),
        ("ports", "20000-20010", "at least 32 ports"),
        ("ports", "many", "at least 32 ports"),
        ("folder", "relative", "must be an absolute path"),
        ("command_seconds", "soon", "not a number of seconds"),
        ("command_seconds", "0", "must be from 1 to 600 seconds"),
        ("account", "a\nb", "must be a single line"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    name: str, value: str, told: str
) -> None:
    with pytest.raises(SpecInvalid, match=told) as refused:
        SlurmSettings.read({name: value})
    assert refused.value.hint


def test_nodes_give_ports_of_their_own_and_take_turns_when_there_are_too_few() -> None:
    settings = SlurmSettings(ports="30000-30095")
    blocks = [settings.ports_of(place) for place in range(4)]
    assert [len(block) for block in blocks] == [32] * 4
    assert len({port for block in blocks[:3] for port in block}) == 96
    assert blocks[3] == blocks[0]


@pytest.mark.parametrize(
    "rest", ["http://head:6820", "https://head:6820", "unix:/run/slurmrestd"]
)
def test_slurmrestd_is_named_by_its_address(rest: str) -> None:
    assert SlurmSettings.read({"rest": rest, "rest_token_file": "/jwt"}).rest == rest


@pytest.mark.parametrize(
    "given", [{"rest": "head:6820"}, {"rest_token_file": "/jwt"}, {"places": "slurm"}]
)
def test_what_names_no_slurmrestd_or_nobody_who_places_is_refused(
    given: dict[str, str],
) -> None:
    with pytest.raises(SpecInvalid):
        SlurmSettings.read(given)
