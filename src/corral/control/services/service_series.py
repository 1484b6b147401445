"""Values of services that are recorded as time series."""

from corral.control.services.service_rates import ServiceRates
from corral.domain.service import Service


def series_values(service: Service, rates: ServiceRates) -> dict[str, float | None]:
    """Return the values of a service by field name: requests and tokens a second, times
    in seconds, the cached share from 0 to 1, and numbers of replicas."""
    return {
        "requests_per_second": rates.requests_per_second,
        "failed_per_second": rates.failed_per_second,
        "tokens_per_second": rates.tokens_per_second,
        "ttft_p50": rates.ttft_p50_seconds,
        "ttft_p90": rates.ttft_p90_seconds,
        "itl_p50": rates.itl_p50_seconds,
        "itl_p90": rates.itl_p90_seconds,
        "cached_share": rates.cached_share,
        "under_way": float(rates.under_way),
        "wanted": float(service.all_wanted),
        "ready": float(service.all_ready),
        "sleeping": float(sum(row.is_sleeping for row in service.replicas)),
    }
