"""Services: their requests, their replicas, which are jobs, and the replacement of
revisions."""

from corral.reconcile.services.service_pass import see_services
from corral.reconcile.services.service_requests import apply_service_request

__all__ = ["apply_service_request", "see_services"]
