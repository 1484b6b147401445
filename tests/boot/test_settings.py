"""Where a cluster lies and what it is asked to be."""

import json
import threading
from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import pytest

from corral.agent.discovery.helper import unread_gpus
from corral.boot.bring_up import decide, settled
from corral.boot.cluster_options import ClusterOptions
from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    UnsafeBind,
    once,
    read_json,
    write_atomically,
)
from corral.domain.errors import Conflict, SpecInvalid
from corral.domain.retention import Retention


def none() -> int:
    return 0


def test_the_directory_is_the_one_asked_for_else_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path / "env"))
    assert ClusterDir.chosen(tmp_path / "asked").root == tmp_path / "asked"
    assert ClusterDir.chosen().root == tmp_path / "env"
    monkeypatch.delenv("CORRAL_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ClusterDir.chosen().root == tmp_path / ".corral"
    monkeypatch.chdir(tmp_path)
    assert ClusterDir.chosen(Path("here")).root == tmp_path / "here"


def test_the_directory_is_its_owners_alone(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path / "c")
    place.create()
    assert place.root.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_is_refused_with_another_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Conflict) as refused:
        ClusterDir(tmp_path / "file").create()
    assert "--dir" in refused.value.hint


def test_settings_read_back_as_they_were_written(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path)
    assert ClusterSettings.load(place) is None
    settings = ClusterSettings(
        nodes=3, gpus=2, pretend=True, shared=("/data",), gpu_slices=7, labels=("a=b", "n2:c"),
        topology="racks=2", own_disks=True, started_in="/work",
    )  # fmt: skip
    settings.save(place)
    assert ClusterSettings.load(place) == settings
    assert json.loads(place.cluster_json.read_text())["engine"] == "local"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "localhost"])
def test_loopback_needs_no_encryption(host: str) -> None:
    assert ClusterSettings(host=host).host == host


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "127.0.0.1.x"]
)
def test_another_host_is_served_with_a_certificate_given_whole_or_made(
    host: str,
) -> None:
    assert ClusterSettings(host=host, nodes=0).host == host
    assert ClusterSettings(host=host, tls_certificate="c", tls_key="k").host == host
    with pytest.raises(
        UnsafeBind, match="--tls-certificate is set without --tls-key"
    ) as refused:
        ClusterSettings(host=host, tls_certificate="c")
    assert "--tls-certificate" in refused.value.hint
    with pytest.raises(UnsafeBind, match="--tls-key is set without --tls-certificate"):
        ClusterSettings(host=host, tls_key="k")
    with pytest.raises(UnsafeBind, match="--host is empty"):
        ClusterSettings(host="")


def test_a_head_on_loopback_has_a_node_of_its_own() -> None:
    with pytest.raises(SpecInvalid, match="1 to 256 nodes") as refused:
        ClusterSettings(nodes=0)
    assert "corral up --host ADDRESS --nodes 0" in refused.value.hint
    with pytest.raises(SpecInvalid, match="0 to 256 nodes") as refused:
        ClusterSettings(nodes=-1, host="10.0.0.1")
    assert "--host" not in refused.value.hint


@pytest.mark.parametrize(
    ("nodes", "gpus"), [(0, 1), (-1, 1), (1, -1), (100_000, 1), (1, 10_000)]
)
def test_a_cluster_that_cannot_be_is_refused(nodes: int, gpus: int) -> None:
    with pytest.raises(SpecInvalid):
        ClusterSettings(nodes=nodes, gpus=gpus)


@pytest.mark.parametrize(
    ("asked", "found", "settings"),
    [
        (ClusterOptions(), 0, ClusterSettings()),
        (ClusterOptions(), 8, ClusterSettings()),
        (ClusterOptions(nodes=3), 0, ClusterSettings(nodes=3, gpus=0)),
        (ClusterOptions(nodes=3), 8, ClusterSettings(nodes=3, gpus=2)),
        (
            ClusterOptions(nodes=3, gpus=2),
            0,
            ClusterSettings(nodes=3, gpus=2, pretend=True),
        ),
        (ClusterOptions(nodes=3, gpus=2), 6, ClusterSettings(nodes=3, gpus=2)),
        (ClusterOptions(gpus=0), 8, ClusterSettings(gpus=0)),
        (
            ClusterOptions(gpus=4, pretend=True),
            8,
            ClusterSettings(gpus=4, pretend=True),
        ),
    ],
)
def test_gpus_are_pretended_only_where_there_are_none_or_when_asked(
    asked: ClusterOptions, found: int, settings: ClusterSettings
) -> None:
    assert settled(asked, lambda: found) == settings


@pytest.mark.parametrize(
    "asked",
    [
        ClusterOptions(nodes=3, gpus=2),
        ClusterOptions(nodes=6),
        ClusterOptions(gpus=6),
        ClusterOptions(gpu_type="h100"),
    ],
)
def test_more_than_the_machines_gpus_is_refused_not_pretended(
    asked: ClusterOptions,
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        settled(asked, lambda: 5)
    assert "--pretend" in refused.value.hint


def test_a_cluster_that_is_down_may_become_another(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path)
    ClusterSettings(nodes=2, gpus=2, pretend=True, gpu_type="a100").save(place)
    assert decide(place, ClusterOptions(), none).nodes == 2
    changed = decide(place, ClusterOptions(nodes=4), none)
    assert (changed.nodes, changed.gpus, changed.gpu_type) == (4, 2, "a100")


def test_what_the_head_alone_reads_changes_while_nodes_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterDir(tmp_path)
    ClusterSettings(pretend=True).save(place)
    monkeypatch.setattr("corral.boot.bring_up.node_processes", lambda place: ["n1"])
    assert decide(place, ClusterOptions(monitoring=True), none).monitoring
    with pytest.raises(Conflict) as refused:
        decide(place, ClusterOptions(monitoring=True, gpus=2), none)
    assert "(ends all jobs), run: corral down; corral up" in refused.value.hint
    monkeypatch.setattr("corral.boot.bring_up.head_runs", lambda place: True)
    with pytest.raises(Conflict) as refused:
        decide(place, ClusterOptions(monitoring=True), none)
    assert refused.value.hint.endswith("corral up --restart --monitoring")


def test_a_cluster_that_is_up_names_the_options_as_they_are_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterDir(tmp_path)
    ClusterSettings().save(place)
    monkeypatch.setattr("corral.boot.bring_up.head_runs", lambda place: True)
    asked = ClusterOptions(
        gpus=1, pretend=True, labels=("a=b", "n1:c"), shared=("/my data",)
    )
    with pytest.raises(Conflict) as refused:
        decide(place, asked, none)
    assert refused.value.message.endswith(
        "settings: --gpus is not set, --pretend is off, --shared is not set, --label is not set"
    )
    assert refused.value.hint.endswith(
        "corral up --gpus 1 --pretend --shared '/my data' --label a=b --label n1:c"
    )


def test_a_cluster_that_is_up_names_the_option_that_turns_a_setting_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ClusterDir(tmp_path)
    ClusterSettings(operators_add_machines=True, monitoring=True).save(place)
    monkeypatch.setattr("corral.boot.bring_up.head_runs", lambda place: True)
    asked = ClusterOptions(operators_add_machines=False, monitoring=False)
    with pytest.raises(Conflict) as refused:
        decide(place, asked, none)
    assert refused.value.hint.endswith(
        "corral up --restart --admins-add-machines --no-monitoring"
    )


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e308])
def test_a_number_of_seconds_or_days_that_cannot_be_is_refused(number: float) -> None:
    for given in ({"reboot_seconds": number}, {"keep_days": number}):
        with pytest.raises(SpecInvalid) as refused:
            ClusterSettings(**given)  # type: ignore[arg-type]
        assert "corral up --" in refused.value.hint


def test_a_damaged_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{half")
    with pytest.raises(Conflict) as refused:
        ClusterSettings.load(ClusterDir(tmp_path))
    assert "cluster.json" in refused.value.message
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(Conflict):
        read_json(tmp_path / "list.json")


def test_a_file_is_replaced_as_a_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, "one")
    write_atomically(path, "two")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("two", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_made_once_is_made_once_whoever_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "token"
    found: list[bytes] = []
    start = threading.Barrier(8)

    def make(number: int) -> None:
        start.wait()
        found.append(once(path, str(number).encode()))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_slices_are_of_pretend_gpus_and_not_shared_by_time_too() -> None:
    with pytest.raises(SpecInvalid, match="not allowed together with --gpu-shares"):
        ClusterSettings(gpus=1, gpu_slices=7, gpu_shares=True)
    with pytest.raises(SpecInvalid, match="this machine has real GPUs"):
        settled(ClusterOptions(gpus=1, gpu_slices=7), lambda: 8)


def test_a_cluster_that_lives_keeps_its_labels_until_it_is_down(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path)
    settled(ClusterOptions(labels=("zone=a",), topology="racks=1"), none).save(place)
    assert decide(place, ClusterOptions(), none).labels == ("zone=a",)
    assert decide(place, ClusterOptions(labels=("zone=b",)), none).topology == "racks=1"


def test_a_cluster_that_shrinks_forgets_the_labels_of_nodes_that_it_has_no_more(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path)
    settled(
        ClusterOptions(nodes=4, labels=("zone=a", "n3:disk", "n4:zone=b")), none
    ).save(place)
    assert decide(place, ClusterOptions(nodes=3), none).labels == ("zone=a", "n3:disk")
    with pytest.raises(SpecInvalid, match="no node n4"):
        decide(place, ClusterOptions(nodes=3, labels=("n4:zone=b",)), none)


def test_how_long_jobs_are_kept_is_a_setting(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path)
    assert ClusterSettings().retention == Retention(seconds=30 * 86400.0, jobs=50_000)
    asked = decide(place, ClusterOptions(keep_days=0.5, keep_jobs=7, gpus=0), none)
    asked.save(place)
    known = ClusterSettings.load(place)
    assert known is not None
    assert known.retention == Retention(seconds=43_200.0, jobs=7)
    for wrong in (0.0, 1e9, nan):
        with pytest.raises(SpecInvalid, match="^--keep-days .* is not valid: .* days$"):
            ClusterSettings(keep_days=wrong)
    with pytest.raises(SpecInvalid, match="^--keep-jobs 0 is not valid"):
        ClusterSettings(keep_jobs=0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"gpus": 1, "gpu_slices": 65}, "--gpu-slices 65 is not valid: use 1 to 64$"),
        ({"check_hours": -1.0}, "--check-hours -1 is not valid: use 0 to .* hours$"),
        ({"check_gangs": -1}, "--check-gangs -1 is not valid: use 0 or more GPUs$"),
        ({"user_requests": 0.0}, "--user-requests 0 is not valid: .* a second$"),
        ({"plan_seconds": 0.0}, "--plan-seconds 0 is not valid: .* an hour$"),
    ],
)
def test_a_setting_that_is_wrong_is_named_alone(
    wrong: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(SpecInvalid, match=f"^{why}"):
        ClusterSettings(**wrong)


def test_the_health_of_nodes_is_observed_or_enforced_and_nothing_else() -> None:
    assert ClusterSettings().health_rules.mode == "enforce"
    assert ClusterSettings(health="observe").health_rules.mode == "observe"
    with pytest.raises(SpecInvalid, match="observe, enforce"):
        ClusterSettings(health="off")


@pytest.mark.parametrize(
    ("devices", "makers"),
    [
        ({"0": ("0x10de", "0x030200")}, ("NVIDIA",)),
        ({"0": ("0x1002", "0x120000"), "1": ("0x1002", "0x030000")}, ("AMD",)),
        # a NIC is not a GPU
        ({"0": ("0x8086", "0x030000"), "1": ("0x10de", "0x020000")}, ()),
    ],
)
def test_no_gpu_is_pretended_unasked_where_there_is_one_that_no_driver_reads(
    tmp_path: Path, devices: dict[str, tuple[str, str]], makers: tuple[str, ...]
) -> None:
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert unread_gpus(tmp_path) == makers

    def made(asked: ClusterOptions) -> bool:
        return settled(asked, lambda: 0, lambda: makers).pretend

    assert made(ClusterOptions(gpus=8, pretend=True)) is True
    assert made(ClusterOptions()) is False
    if not makers:
        assert made(ClusterOptions(gpus=8)) is True
        return
    with pytest.raises(
        SpecInvalid, match=f"--gpus 8: this machine has a GPU of {makers[0]}"
    ) as no:
        made(ClusterOptions(gpus=8))
    assert "--pretend" in no.value.hint
