"""Services as their gateways see them: the routes that the head hands out, and what the
gateways' counters say about demand and latency."""

from corral.control.services.published_routes import PublishedRoutes
from corral.control.services.service_rates import ServiceRates
from corral.control.services.service_traffic import ServiceTraffic

__all__ = ["PublishedRoutes", "ServiceRates", "ServiceTraffic"]
