"""Each setting of a cluster is declared once, and its option is made from that."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from corral.boot.bring_up import with_variables
from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import SETTINGS
from corral.boot.setting import Setting
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.cli.joining import Offer
from corral.cli.main import build
from corral.cli.setting_options import requested_settings, with_options
from corral.cli.up_options import SettingOptions
from corral.domain.errors import SpecInvalid

INTERNAL = {"started_in"}  # set by `corral up` itself
PAIRS = {"engine_settings": "partition=gpu", "policy": "root=allow"}
EACH = [pytest.param(setting, id=name) for name, setting in SETTINGS.items()]


def asked(*words: str) -> ClusterOptions:
    """Return the settings that `corral up` requests with these words."""
    _, bound, _ = build().parse_args(
        ["up", *words], exit_on_error=False, print_error=False
    )
    return requested_settings(bound.arguments.get("settings", SettingOptions()))


def example(setting: Setting) -> tuple[list[str], Any]:
    """Return words that set it, and the value that is requested by them."""
    if setting.kind is bool:
        return [setting.option], True
    if setting.is_mapping:
        key, _, word = PAIRS[setting.name].partition("=")
        return [setting.option, PAIRS[setting.name]], {key: word}
    text = {int: "3", float: "2.5", str: "word"}[setting.kind]
    value: Any = setting.kind(text)
    if setting.is_path:
        value = str(Path("word").absolute())
    if setting.is_repeated:
        return [setting.option, text] * 2, (value, value)
    return [setting.option, text], value


def test_every_setting_is_declared_or_internal() -> None:
    """A new setting needs an option and help, or a place in the list of internal
    ones."""
    declared = set(SETTINGS)
    assert declared | INTERNAL == {field.name for field in fields(ClusterSettings)}
    assert not declared & INTERNAL
    assert {field.name for field in fields(SettingOptions)} == declared  # type: ignore[arg-type]


def test_every_option_belongs_to_one_setting() -> None:
    options = [setting.option for setting in SETTINGS.values()]
    options += [setting.negative for setting in SETTINGS.values() if setting.negative]
    assert len(set(options)) == len(options)


@pytest.mark.parametrize("setting", EACH)
def test_every_setting_has_help_and_the_form_of_its_value(setting: Setting) -> None:
    assert setting.help.strip()
    assert not setting.help.endswith(".")
    assert setting.option.startswith("--")
    assert bool(setting.metavar) != (setting.kind is bool)
    assert bool(setting.variable) == bool(setting.variable_file)


@pytest.mark.parametrize("setting", EACH)
def test_help_shows_what_is_declared(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    build()(["up", "--help"], exit_on_error=False, result_action="return_value")
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert setting.option in shown
    assert setting.negative in shown
    for word in setting.text.split():
        assert word in shown


@pytest.mark.parametrize("setting", EACH)
def test_an_option_requests_its_setting_and_no_other(setting: Setting) -> None:
    words, value = example(setting)
    assert asked(*words).given == {setting.name: value}


@pytest.mark.parametrize("setting", EACH)
def test_a_negative_option_turns_its_setting_off(setting: Setting) -> None:
    if setting.negative:
        assert asked(setting.negative).given == {setting.name: False}


def test_a_setting_without_a_typed_option_is_not_requested() -> None:
    assert asked().given == {}
    assert asked("--nodes", "1", "--keep-days", "30").given == {
        "nodes": 1,
        "keep_days": 30.0,
    }
    assert requested_settings(Offer()).given == {}


def test_the_default_is_part_of_the_help() -> None:
    assert SETTINGS["keep_jobs"].text.endswith(" (default: 50000).")
    assert SETTINGS["key_file"].text.endswith(" (default: DIR/key).")
    assert SETTINGS["own_disks"].text.endswith(" share this machine's disk).")
    assert SETTINGS["monitoring"].text.endswith(" is installed.")
    assert SETTINGS["store_file"].text.endswith("; or set CORRAL_STORE.")
    assert SETTINGS["labels"].text.endswith("; may be repeated.")
    assert replace(SETTINGS["keep_jobs"], default=7).text.endswith(" (default: 7).")


def test_an_address_in_place_of_the_path_of_a_store_is_kept_for_its_check() -> None:
    address = "postgresql://u@one/corral"
    assert asked("--store-file", address).given == {"store_file": address}


def test_pairs_without_a_value_are_refused() -> None:
    with pytest.raises(SpecInvalid, match="is not of the form NAME=VALUE"):
        asked("--set", "partition")
    with pytest.raises(SpecInvalid, match="not of the form NAME=VALUE"):
        asked("--policy", "root")


def test_an_environment_variable_sets_what_no_option_has_set(tmp_path: Path) -> None:
    variables = {setting.variable for setting in SETTINGS.values() if setting.variable}
    assert variables == {"CORRAL_STORE", "CORRAL_OIDC_SECRET"}
    place = ClusterDir(tmp_path)
    environment = {"CORRAL_STORE": "postgresql://u@one/corral"}
    requested = with_variables(place, ClusterOptions(nodes=2), environment)
    kept = tmp_path / "store"
    assert requested.given == {"nodes": 2, "store_file": str(kept)}
    assert kept.read_text() == "postgresql://u@one/corral\n"
    typed = ClusterOptions(store_file="/typed")
    assert with_variables(place, typed, environment) == typed


def test_a_name_that_no_setting_has_is_refused() -> None:
    with pytest.raises(TypeError, match="nodse"):
        ClusterOptions(nodse=3)
    with pytest.raises(KeyError):
        ClusterOptions().value("nodse")


def test_options_are_made_of_a_part_of_the_settings() -> None:
    @with_options([SETTINGS["gpus"], SETTINGS["labels"]])
    class Part:
        """Two options."""

    assert [field.name for field in fields(Part)] == ["gpus", "labels"]  # type: ignore[arg-type]
    assert requested_settings(Part()).given == {}
