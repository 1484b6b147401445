"""Dispatch of tokens to their experts and back: how many copies of a token are sent
inside a domain and to other domains."""

from dataclasses import dataclass
from functools import cache
from math import comb

from corral.catalog.facts import table
from corral.catalog.models import Experts
from corral.perf.topology import GpuGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Expert dispatch of a library: catalog/data/dispatch.csv.

    `once`: a token is sent once to each GPU that has experts for it, and once to each
    domain, which then forwards it; otherwise a copy is sent to each expert. `across`,
    `inside`: the shares of the full rate that dispatch reaches over the adapters and
    over the links inside a domain. `hidden`: share of the dispatch time in which
    another micro batch is computed.
    """

    once: bool
    across: float
    inside: float
    hidden: float


@cache
def dispatch(library: str) -> Dispatch:
    """Return the dispatch of the library; missing values are taken from the row "any"."""
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
    """Mean number of copies of one token that are sent: `inside` to other GPUs of the
    same domain (or of the domain where the token arrived), and `across` to other
    domains."""

    inside: float
    across: float


def copies(experts: Experts, group: GpuGroup) -> Copies:
    """Return the mean number of copies of a token if it is sent only once to each
    domain and each GPU. The router is assumed to use all experts equally.

    k independent draws from n places give n (1 - (1 - 1/n)^k) different places. A token
    that is restricted to some groups of experts reaches only the domains with these
    groups. Source: arXiv:2412.19437, section 2.1.2 and 3.2.2 (at most 4 nodes a token).
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
    """Return the mean number of domains that hold experts of the groups to which a
    token is restricted, over all choices of groups."""
    groups, chosen_groups = experts.groups, experts.groups_per_token
    if groups == 1 or domains == 1:
        return float(domains)
    if domains >= groups:
        return domains * chosen_groups / groups
    missed = comb(groups - groups // domains, chosen_groups) / comb(
        groups, chosen_groups
    )
    return max(domains * (1 - missed), 1.0)
