"""Tokens on their way to their experts and back: how many copies go how far."""

from dataclasses import dataclass
from functools import cache
from math import comb

from corral.catalog.facts import table
from corral.catalog.models import Experts
from corral.perf.topology import GpuGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Expert dispatch of a library: catalog/data/dispatch.csv.

    `once`: a token goes once to each GPU that has experts of it, and once to each
    domain, where it is handed on; else a copy goes to each expert. `across`, `inside`:
    shares that it reaches of the rate of adapters and of the links inside of a domain.
    `hidden`: share of the time in which another micro batch is computed.
    """

    once: bool
    across: float
    inside: float
    hidden: float


@cache
def dispatch(library: str) -> Dispatch:
    """Return the dispatch of the library; missing values are those of "any"."""
    dispatch_rows = table("dispatch")
    facts = {**dispatch_rows["any"], **dispatch_rows.get(library, {})}
    return Dispatch(
        once=facts["once"].number > 0,
        across=facts["across"].number,
        inside=facts["inside"].number,
        hidden=facts["hidden"].number,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Mean copies of one token: `inside`, to other GPUs of the domain that it is in or
    came to; `across`, to other domains."""

    inside: float
    across: float


def copies(experts: Experts, group: GpuGroup) -> Copies:
    """Return the copies if each domain and each GPU gets a token once, with a router
    that uses all experts alike.

    k of n places, each drawn by itself, are n (1 - (1 - 1/n)^k) different ones. A token
    that is held to some groups of experts reaches only the domains that these are in.
    Source: arXiv:2412.19437, section 2.1.2 and 3.2.2 (at most 4 nodes a token).
    """
    domains = _mean_domains_reached(experts, group.domains)
    gpus = domains * group.per_domain
    return Copies(
        inside=_different(gpus, experts.per_token) * (1 - 1 / group.per_domain),
        across=_different(domains, experts.per_token) * (1 - 1 / group.domains),
    )


def _different(places: float, drawn: int) -> float:
    return places * (1 - (1 - 1 / places) ** drawn) if places > 1 else 1.0


def _mean_domains_reached(experts: Experts, domains: int) -> float:
    """Domains that have experts of a token's groups, in the mean over the choices of
    groups."""
    groups, chosen_groups = experts.groups, experts.groups_per_token
    if groups == 1 or domains == 1:
        return float(domains)
    if domains >= groups:
        return domains * chosen_groups / groups
    missed = comb(groups - groups // domains, chosen_groups) / comb(
        groups, chosen_groups
    )
    return max(domains * (1 - missed), 1.0)
