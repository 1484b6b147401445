"""What Ray is started with."""

from corral.engines.ray import start_options
from corral.engines.ray.settings import RaySettings


def test_no_token_is_in_a_command_and_all_processes_are_told_where_it_lies() -> None:
    env = start_options.environment("/c/ray/token")
    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == (
        "token",
        "/c/ray/token",
    )
    assert "RAY_AUTH_MODE" not in start_options.environment("")


def test_a_head_is_started_with_what_was_asked_for_alone() -> None:
    settings = RaySettings(num_gpus=2, host="10.0.0.1")
    words = start_options.head_words(settings, port=7000, temp_dir="/tmp/t")[4:]
    assert words == [
        "start",
        "--block",
        "--head",
        "--port=7000",
        "--include-dashboard=false",
        "--temp-dir=/tmp/t",
        "--include-log-monitor=false",
        "--disable-usage-stats",
        "--node-ip-address=10.0.0.1",
        "--num-gpus=2",
    ]


def test_a_node_joins_under_its_name() -> None:
    words = start_options.join_words(
        RaySettings(), address="10.0.0.1:7000", labels={"corral.node": "r2"}
    )
    assert "--address=10.0.0.1:7000" in words
    assert "--labels=corral.node=r2" in words


def test_a_head_without_redis_keeps_nothing_and_clusters_keep_apart_what_they_keep() -> (
    None
):
    assert start_options.keeping("", "a0b1") == {}
    kept = start_options.keeping("10.0.0.9:6379", "a0b1")
    assert kept["RAY_REDIS_ADDRESS"] == "10.0.0.9:6379"
    assert "corral-a0b1" in kept.values()


def test_what_is_held_is_named_by_its_cluster_and_its_node() -> None:
    name = start_options.hold_name("a0b1", "7df7", 3)
    assert name.startswith(start_options.hold_prefix(start_options.namespace("a0b1")))
    assert start_options.held_on(name) == "7df7"
