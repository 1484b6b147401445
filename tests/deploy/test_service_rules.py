"""The shipped rules for services, run by promtool: alarms that must fire, and those that
must not."""

import shutil
from pathlib import Path

import pytest

from tests.deploy.promtool import series
from tests.deploy.test_rules import is_firing

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool"
)


def gauge(name: str, values: str, labels: str = "") -> dict[str, str]:
    return series(f'corral_service_{name}{{service="chat"{labels}}}', values)


def ready(values: str, wanted: int = 2) -> list[dict[str, str]]:
    return [
        gauge("replicas", values, ',state="ready"'),
        gauge("replicas", "1x40", ',state="starting"'),
        gauge("wanted", f"{wanted}x40"),
    ]


@pytest.mark.parametrize(
    ("alert", "values", "wanted", "minutes", "fires"),
    [
        ("CorralServiceBelowWanted", "1x40", 2, 15, True),
        ("CorralServiceBelowWanted", "1x40", 2, 8, False),
        ("CorralServiceBelowWanted", "1x6 2x40", 2, 15, False),
        ("CorralServiceDown", "0x40", 2, 5, True),
        ("CorralServiceDown", "1x40", 2, 5, False),
        ("CorralServiceDown", "0x40", 0, 5, False),  # asleep, or scaled to zero
    ],
)
def test_a_service_with_too_few_ready_replicas_is_an_alarm(
    tmp_path: Path, alert: str, values: str, wanted: int, minutes: int, fires: bool
) -> None:
    assert is_firing(tmp_path, alert, ready(values, wanted), minutes) == fires


@pytest.mark.parametrize(
    ("alert", "counted"),
    [
        ("CorralServiceErrors", "failed_requests_total"),
        ("CorralServiceRefuses", "refused_requests_total"),
    ],
)
@pytest.mark.parametrize(
    ("bad", "all_", "fires"),
    [
        ("0+60x40", "0+600x40", True),
        ("0+6x40", "0+600x40", False),
        ("0x40", "0x40", False),
    ],
)
def test_a_share_of_bad_answers_is_an_alarm(
    tmp_path: Path, alert: str, counted: str, bad: str, all_: str, fires: bool
) -> None:
    load = [gauge(counted, bad), gauge("requests_total", all_)]
    assert is_firing(tmp_path, alert, load, 20) == fires


@pytest.mark.parametrize(
    ("alert", "metric", "kind"),
    [
        ("CorralServiceTtftAboveTarget", "time_to_first_token_seconds", "ttft_p90"),
        ("CorralServiceItlAboveTarget", "inter_token_latency_seconds", "itl_p90"),
    ],
)
@pytest.mark.parametrize(
    ("target", "fires"), [("0.5x40", True), ("2x40", False), ("_x40", False)]
)
def test_latencies_above_the_target_of_the_spec_are_an_alarm(
    tmp_path: Path, alert: str, metric: str, kind: str, target: str, fires: bool
) -> None:
    buckets = [
        series(
            f'vllm:{metric}_bucket{{service="chat",model_name="m",le="{bound}"}}',
            f"0+{count}x40",
        )
        for bound, count in (("0.25", 10), ("1.0", 100), ("+Inf", 100))
    ]
    targets = [gauge("latency_target_seconds", target, f',kind="{kind}"')]
    assert is_firing(tmp_path, alert, [*buckets, *targets], 20) == fires


@pytest.mark.parametrize(
    ("alert", "values", "fires"),
    [
        ("CorralServiceCrashLoop", gauge("failed_starts", "4x40"), True),
        ("CorralServiceCrashLoop", gauge("failed_starts", "1x40"), False),
        (
            "CorralServiceCanaryTurnedBack",
            gauge("canary", "1x40", ',state="turned_back"'),
            True,
        ),
        (
            "CorralServiceCanaryTurnedBack",
            gauge("canary", "1x40", ',state="trial"'),
            False,
        ),
        (
            "CorralServiceEjects",
            gauge("gateway_events_total", "0+1x40", ',event="ejections"'),
            True,
        ),
        (
            "CorralServiceEjects",
            gauge("gateway_events_total", "0+9x40", ',event="retries"'),
            False,
        ),
        ("CorralGatewayDown", gauge("gateway_up", "0x40"), True),
        ("CorralGatewayDown", gauge("gateway_up", "1x40"), False),
    ],
)
def test_states_that_need_a_person_are_alarms(
    tmp_path: Path, alert: str, values: dict[str, str], fires: bool
) -> None:
    assert is_firing(tmp_path, alert, [values], 20) == fires
