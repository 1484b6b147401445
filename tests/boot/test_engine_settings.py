"""What `corral up --set` refuses, of every engine and each of its settings, and what it
tells."""

import re
import shlex
import socket
from pathlib import Path

import pytest

from corral.boot.bring_up import bring_up, decide
from corral.boot.cluster_options import ClusterOptions
from corral.boot.engine_settings import (
    KINDS,
    check_engine_settings,
    check_files,
    example,
)
from corral.boot.settings import ClusterDir
from corral.cli.setting_options import pairs_of
from corral.cli.slurm.install import install
from corral.domain.errors import Conflict, SpecInvalid
from corral.engines.typed_settings import read_settings, types_of

ALL = [(engine, name) for engine, kind in KINDS.items() for name in types_of(kind)]
WRONG = {
    "bool": ["maybe", "1"],
    "int | None": ["many", "-1", "1.5"],
    "float": ["soon", "-1", "nan", "inf"],
}
WRONG_TEXTS = {
    ("ray", "address"): ["here", "host:", ":1", "host:x"],
    ("ray", "redis"): ["redis://here"],
    ("ray", "node_dir"): ["nodes"],
    ("ray", "token_file"): ["/token"],  # of no cluster
    ("slurm", "ports"): ["many", "20000-20010", "1-99999"],
    ("slurm", "folder"): ["relative", "a\nb"],
    ("slurm", "images"): ["relative", "a\nb"],
    ("slurm", "partition"): ["a\nb"],
    ("slurm", "account"): ["a\nb"],
    ("slurm", "qos"): ["a\nb"],
    ("slurm", "reservation"): ["a\nb"],
    ("slurm", "options"): ["a\nb"],
    ("slurm", "places"): ["slurm"],
    ("slurm", "rest"): ["head:6820"],
    ("slurm", "rest_token_file"): ["/jwt"],  # of no slurmrestd
    ("kubernetes", "claims"): ["data", "data:relative"],
    ("kubernetes", "secrets"): ["keys"],
    ("kubernetes", "nodes"): ["pool"],
    ("kubernetes", "extra"): ["rdma/hca"],
}


def wrong_values(engine: str, name: str) -> list[str]:
    type = types_of(KINDS[engine])[name]
    return WRONG.get(type, WRONG_TEXTS.get((engine, name), []))


def told_in(hint: str) -> dict[str, str]:
    """The settings that a hint says to type, as the command line reads them."""
    words = shlex.split(hint[hint.index("--set") :])
    return pairs_of(
        tuple(
            value
            for set, value in zip(words, words[1:], strict=False)
            if set == "--set"
        )
    )


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        (engine, name, value)
        for engine, name in ALL
        for value in wrong_values(engine, name)
    ],
)
def test_a_refused_setting_is_told_with_its_own_name_and_a_value_that_is_taken(
    engine: str, name: str, value: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read_settings(KINDS[engine], {name: value})
    hint = refused.value.hint
    told = told_in(hint)
    assert f"corral up --engine {engine} " in hint
    assert "..." not in hint
    assert name in told
    assert told[name] != value
    read_settings(KINDS[engine], {name: value} | told)


def test_every_number_and_truth_can_be_wrong_and_most_texts() -> None:
    typed = [one for one in ALL if wrong_values(*one)]
    assert {engine for engine, _ in typed} == set(KINDS)
    assert WRONG_TEXTS.keys() <= set(typed)
    types = {types_of(KINDS[engine])[name] for engine, name in ALL}
    assert {type for type in types if not re.match("str|tuple", type)} == set(WRONG)


@pytest.mark.parametrize(("engine", "name"), ALL)
def test_a_setting_without_a_value_is_told_with_one(engine: str, name: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        pairs_of((name,), engine)
    (pair,) = told_in(refused.value.hint).items()
    assert pair[0] == name
    beside = {"address": "10.0.0.1:6379"} if engine == "ray" else {"rest": "unix:/a"}
    own = beside if beside.keys() <= types_of(KINDS[engine]).keys() else {}
    read_settings(KINDS[engine], own | dict([pair]))


def test_a_name_that_nobody_has_is_told_with_one_that_is_there() -> None:
    assert example("nothing", None) == example("nothing", "slurm") == "partition=gpu"


def test_settings_of_no_engine_are_told_with_the_engine_that_has_them() -> None:
    with pytest.raises(SpecInvalid) as refused:
        check_engine_settings("local", {"num_cpus": "4", "pretend": "yes"})
    assert refused.value.hint.endswith(
        "corral up --engine ray --set num_cpus=4 --set pretend=yes"
    )


FILES = [(engine, name) for engine, kind in KINDS.items() for name in kind.FILES]
BESIDE = {
    "token_file": {"address": "10.0.0.1:6379"},
    "rest_token_file": {"rest": "http://a"},
}


@pytest.mark.parametrize(("engine", "name"), FILES)
def test_a_file_that_is_not_there_is_refused_before_a_head_starts(
    engine: str, name: str, tmp_path: Path
) -> None:
    place, given = ClusterDir(tmp_path / "here"), BESIDE.get(name, {})
    for path, why in (
        ("/nonexistent/file", "this file does not exist"),
        (str(tmp_path), "not a regular file"),
    ):
        with pytest.raises(
            SpecInvalid, match=f"^--set {name}={path}: .*{why}"
        ) as refused:
            bring_up(
                place,
                ClusterOptions(engine=engine, engine_settings={**given, name: path}),
            )
        hint = refused.value.hint
        assert f"run: corral up --engine {engine} " in hint
        assert told_in(hint) == {**given, name: path}
        assert not place.cluster_json.exists()
    (tmp_path / "file").touch()
    check_files(engine, {**given, name: str(tmp_path / "file")})


def test_the_folder_that_nodes_read_is_one_that_the_head_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_files("slurm", {"folder": str(tmp_path / "to" / "be" / "made")})
    (tmp_path / "file").touch()
    with pytest.raises(
        SpecInvalid,
        match=f"^--set folder={tmp_path}/file/x: {tmp_path}/file is not a dir",
    ) as below:
        check_files("slurm", {"folder": str(tmp_path / "file" / "x"), "partition": "p"})
    assert below.value.hint == (
        "choose another directory: corral up --engine slurm --set folder=FOLDER --set "
        "partition=p"
    )
    # root may write everywhere
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(SpecInvalid, match=f"{tmp_path} cannot be written") as refused:
        check_files("slurm", {"folder": str(tmp_path / "x")})
    assert (
        f"mkdir -p {tmp_path}/x; then run: corral up --engine slurm"
        in refused.value.hint
    )


def test_the_socket_of_slurmrestd_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(
        SpecInvalid, match="no slurmrestd listens on this socket"
    ) as refused:
        check_files("slurm", {"rest": f"unix:{path}"})
    assert (
        f"slurmrestd unix:{path}; then run: corral up --engine slurm"
        in refused.value.hint
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        check_files("slurm", {"rest": f"unix:{path}"})


def test_a_file_is_kept_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    place = ClusterDir(tmp_path / "here")
    for typed, whole in (("jwt", f"{tmp_path}/jwt"), ("~/jwt", "/home/ada/jwt")):
        given = {"rest": "http://a", "rest_token_file": typed}
        kept = decide(
            place, ClusterOptions(engine="slurm", engine_settings=given), lambda: 0
        )
        assert kept.engine_settings == {"rest": "http://a", "rest_token_file": whole}


@pytest.mark.parametrize("slurms_too", [True, False])
def test_own_shims_in_the_place_of_slurms_commands_are_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurms_too: bool
) -> None:
    shims, own, place = (
        tmp_path / "shims",
        tmp_path / "own",
        ClusterDir(tmp_path / "here"),
    )
    install(into=shims)
    own.mkdir()
    for name in ("scontrol", "squeue", "sbatch", "scancel", "sacct") * slurms_too:
        (own / name).write_text("#!/bin/sh\n")
        (own / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{own}")
    with pytest.raises(
        Conflict, match=f"^{shims}/scontrol is not a command of Slurm"
    ) as refused:
        bring_up(
            place, ClusterOptions(engine="slurm", engine_settings={"partition": "gpu"})
        )
    first = str(own) if slurms_too else "FOLDER_OF_SLURM"
    way_out = f'PATH={first}:"$PATH" corral up --engine slurm --set partition=gpu'
    assert refused.value.hint.endswith(way_out)
    assert not place.cluster_json.exists()
    check_files("slurm", {"rest": "http://127.0.0.1:6820"})
    monkeypatch.setenv("PATH", f"{own}:{shims}")
    if slurms_too:
        check_files("slurm", {"partition": "gpu"})
