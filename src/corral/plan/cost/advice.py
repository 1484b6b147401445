"""Advice about costs in plain sentences: buy, reserve or rent, by how much and from
when."""

from typing import Final

from corral.catalog.devices import device
from corral.domain.units import counted, share_text
from corral.plan.cost.budget import AffordableGpus
from corral.plan.cost.hybrid import Hybrid
from corral.plan.cost.market import rented_only
from corral.plan.cost.plan import OWN, Costs, OwnOrRent
from corral.plan.cost.terms_report import assumption_lines as term_words

SURE: Final = 0.8  # of the draws agree: below, the prices decide
NEAR: Final = 0.1  # of a bill: what is less than that, an offer turns over
VERBS: Final = {OWN: "Buy", "on demand": "Rent on demand", "reserved": "Reserve"}
DOING: Final = {
    OWN: "owning",
    "on demand": "renting on demand",
    "reserved": "reserving",
}
SPOT: Final = "spot"


def advice(found: Costs) -> str:
    """Return the advice as text. If given, it first says what a budget and a demand
    amount to. Then it names the cheapest option that a cloud cannot withdraw, its
    saving against the alternative, its break-even and its certainty. Spot comes last.
    """
    is_sold = not rented_only(device(found.request.gpu))
    able = (found.way(name) for name in VERBS if is_sold or name != OWN)
    sorted_options = sorted(able, key=lambda way: way.bill.usd)
    best_option, next_best = (
        sorted_options[0],
        next(
            (option for option in sorted_options[1:] if option.name == OWN),
            sorted_options[1],
        ),
    )
    sentences = (
        _of_budget(found),
        "" if found.hybrid is None else _of_demand(found.hybrid),
        _what_to_do(found, best_option, next_best),
        _from_when(found, best_option),
        *term_words(found.terms),
        _from_which_bill(found),
        _how_sure(found, best_option, next_best),
        _on_spot(found, best_option),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _what_to_do(found: Costs, best: OwnOrRent, next_best: OwnOrRent) -> str:
    request = found.request
    spared = next_best.bill.usd - best.bill.usd
    share = spared / next_best.bill.usd if next_best.bill.usd else 0.0
    verb = VERBS[best.name]
    if request.budget_usd is not None and best.bill.spent > request.budget_usd:
        verb = f"With a larger budget {verb.lower()}"
    elif share < NEAR and not _is_sure(best, next_best):
        verb = f"The difference is too small to decide; {DOING[best.name]} is slightly cheaper"
    return (
        f"{verb}: {counted(request.gpus, 'GPU')} used for "
        f"{share_text(request.utilisation)} of the hours cost {usd_text(best.bill.usd)} over "
        f"{counted(request.years, 'year')}, {usd_text(spared)} ({share_text(share)}) less than "
        f"{DOING[next_best.name]}."
    )


def _from_when(found: Costs, best: OwnOrRent) -> str:
    rent = found.way("on demand")
    if rented_only(device(found.request.gpu)):
        return ""
    if rent.even_use is None:
        return (
            "Even with use around the clock, buying costs more than renting on demand."
        )
    pays = f"Buying is cheaper than renting on demand from {share_text(rent.even_use)} use on"
    if best.name != OWN:
        return f"{pays}."
    if rent.even_month is not None:
        return f"{pays}, and the purchase is paid back in month {rent.even_month}."
    residual_usd = -sum(line.usd for line in best.bill.lines if line.usd < 0)
    return (
        f"{pays}, counting the hardware's residual value of {usd_text(residual_usd)}."
    )


def _from_which_bill(found: Costs) -> str:
    if rented_only(device(found.request.gpu)):
        return ""
    return f"Owning is cheaper if the cloud bill exceeds {usd_text(found.even_bill)} a month."


def _own_win_share(best: OwnOrRent, next_best: OwnOrRent) -> float | None:
    """Return the share of random draws in which owning costs less than the other of the
    two options; None if neither of them is owning."""
    if OWN not in (best.name, next_best.name):
        return None
    return best.own_wins if next_best.name == OWN else next_best.own_wins


def _is_sure(best: OwnOrRent, next_best: OwnOrRent) -> bool:
    wins = _own_win_share(best, next_best)
    return wins is None or not 1 - SURE < wins < SURE


def _how_sure(found: Costs, best: OwnOrRent, next_best: OwnOrRent) -> str:
    """Return a sentence on the assumptions that decide, if it is uncertain whether
    owning or renting costs less; "" otherwise."""
    wins = _own_win_share(best, next_best)
    if wins is None or _is_sure(best, next_best):
        return ""
    top_swings = " and ".join(swing.name for swing in found.swings[:2])
    return (
        f"Owning is cheaper in {share_text(wins)} of random draws of the assumptions: get offers "
        f"first; the most important assumptions are {top_swings}."
    )


def _on_spot(found: Costs, best: OwnOrRent) -> str:
    spot = found.way(SPOT)
    spared = best.bill.usd - spot.bill.usd
    if spared <= 0:
        return ""
    return (
        f"Work that may be interrupted costs {usd_text(spot.bill.usd)} on spot GPUs, "
        f"{share_text(spared / best.bill.usd)} less."
    )


def _of_budget(found: Costs) -> str:
    affordable_gpus, budget = found.bought, found.request.budget_usd
    if affordable_gpus is None or budget is None:
        return ""
    years = counted(found.request.years, "year")
    node = counted(affordable_gpus.node_gpus, "GPU")
    if affordable_gpus.by_whole_cost:
        can = f"buy {counted(affordable_gpus.by_whole_cost, 'GPU')} and run them for {years}"
    elif affordable_gpus.by_capital:
        can = (
            f"buy {counted(affordable_gpus.by_capital, 'GPU')} and run them for "
            f"{counted(affordable_gpus.months, 'month')}; for {years}, {node} cost "
            f"{usd_text(affordable_gpus.node_usd)}"
        )
    else:
        can = (
            f"buy no node: {node} cost {usd_text(affordable_gpus.node_once)} at the start, and "
            f"{usd_text(affordable_gpus.node_usd)} in {years}"
        )
    return f"{usd_text(budget)} {can}. {rented_text(found, affordable_gpus)}"


def rented_text(found: Costs, own: AffordableGpus) -> str:
    """Return what a budget rents: for how long it rents the requested GPUs, and how
    many GPUs it rents for the requested years."""
    request = found.request
    years, use = counted(request.years, "year"), share_text(request.utilisation)
    months = counted(own.rented_months, "month")
    gpus = counted(request.gpus, "GPU")
    lasts = f"At {use} use, the budget rents {gpus} on demand for {months}"
    if own.kept_gpus < 1:
        return (
            f"{lasts}; for {years} it rents none, because staff for a rented cluster cost "
            f"{usd_text(own.people_usd)}."
        )
    spot = f", or {own.kept_on_spot:,.1f} on spot" if own.kept_on_spot >= 1 else ""
    return f"{lasts}; for {years} it rents {own.kept_gpus:,.1f} GPUs on demand{spot}."


def _of_demand(mix: Hybrid) -> str:
    optimal_mix = mix.best
    unmixed_usd = min(mix.all_own.usd, mix.all_rent.usd)
    cheaper_way = (
        "owning all GPUs" if mix.all_own.usd < mix.all_rent.usd else "renting all GPUs"
    )
    if optimal_mix.usd >= unmixed_usd:
        return (
            f"For this demand, {cheaper_way} is cheapest: {usd_text(optimal_mix.usd)}."
        )
    return (
        f"For this demand, own {counted(optimal_mix.owned, 'GPU')} and rent the peaks on demand: "
        f"{usd_text(optimal_mix.usd)}, {share_text(1 - optimal_mix.usd / unmixed_usd)} "
        f"less than {cheaper_way}."
    )


def usd_text(usd: float) -> str:
    sign, usd = "-" if usd < 0 else "", abs(usd)
    if usd >= 1e6:
        return f"{sign}{usd / 1e6:,.2f} million USD"
    return f"{sign}{usd:,.0f} USD"
