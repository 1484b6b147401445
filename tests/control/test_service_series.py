"""Curves of services: what the gateways measure, and the numbers of replicas."""

from dataclasses import replace

from corral.control.services import ServiceRates
from corral.control.services.service_series import series_values
from tests.control.services import row, service


def test_a_service_has_its_rates_and_replicas_and_gaps_where_nothing_was_measured() -> (
    None
):
    chat = replace(service(row(1), row(2)), wanted=3)
    ready = chat.ready_count
    rates = ServiceRates(under_way=4, requests_per_second=2.5, ttft_p90_seconds=0.3)
    values = series_values(chat, rates)
    assert (values["wanted"], values["ready"], values["sleeping"]) == (3, ready, 0)
    assert (values["under_way"], values["requests_per_second"]) == (4, 2.5)
    assert (values["ttft_p90"], values["itl_p90"]) == (0.3, None)
