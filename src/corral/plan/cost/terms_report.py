"""Tables that compare terms and kinds of cloud, and show a year of owning."""

from collections.abc import Iterator, Sequence

from corral.domain.units import counted
from corral.plan.cost.terms import CloudKind, CostTerm, YearLine
from corral.plan.report import ReportTable, columns


def terms_table(terms: Sequence[CostTerm], own: str) -> ReportTable:
    """Return a table of each term with all ways, and the cheapest of those that a cloud
    cannot withdraw."""
    option_names = list(terms[0].bills)
    return ReportTable(
        title="One year, three years",
        columns=columns(
            "for",
            *((option_name, "USD") for option_name in option_names),
            "cheapest",
            ("owning is cheaper from", "% of the hours"),
        ),
        rows=tuple(
            (
                counted(term.years, "year"),
                *(term.bills[option_name].usd for option_name in option_names),
                term.cheapest,
                None if term.even_use is None else 100 * term.even_use,
            )
            for term in terms
        ),
        note=f"present values; {own} includes the residual value of the hardware",
    )


def clouds_table(kinds: Sequence[CloudKind]) -> ReportTable:
    """Return a table of neo-clouds and hyperscalers, each at the median of its offers."""
    return ReportTable(
        title="Kinds of cloud, on demand",
        columns=columns(
            "at",
            "offers",
            ("lowest", "USD a GPU-hour"),
            ("median", "USD a GPU-hour"),
            ("highest", "USD a GPU-hour"),
            "oldest",
            "older, left out",
            ("present value in all", "USD"),
            ("owning is cheaper from", "% of the hours"),
        ),
        rows=tuple(
            (
                kind.name,
                len(kind.offers),
                kind.offers[0].usd_per_gpu_hour,
                kind.usd_per_gpu_hour,
                kind.offers[-1].usd_per_gpu_hour,
                min(offer.date for offer in kind.offers).isoformat(),
                kind.left_out,
                kind.usd,
                None if kind.even_use is None else 100 * kind.even_use,
            )
            for kind in kinds
        ),
        note="offers that are a year older than the newest are left out if newer ones remain",
    )


def year_table(lines: Sequence[YearLine]) -> ReportTable:
    """Return a table of the running costs of owning, from low to high, with their
    sources."""
    nonzero_lines = [line for line in lines if line.high]
    return ReportTable(
        title="A year of owning, from low to high",
        columns=columns(
            "what", ("usual", "USD"), ("low", "USD"), ("high", "USD"), "source"
        ),
        rows=(
            *(
                (line.name, line.usual, line.low, line.high, line.source)
                for line in nonzero_lines
            ),
            (
                "in all",
                sum(line.usual for line in nonzero_lines),
                sum(line.low for line in nonzero_lines),
                sum(line.high for line in nonzero_lines),
                "",
            ),
        ),
    )


def assumption_lines(terms: Sequence[CostTerm]) -> Iterator[str]:
    """Yield a sentence if the length of the term decides between owning and renting."""
    shortest_term, long = terms[0], terms[-1]
    if shortest_term.cheapest != long.cheapest:
        yield (
            f"For {counted(shortest_term.years, 'year')} the cheapest way is "
            f"{shortest_term.cheapest}, for "
            f"{counted(long.years, 'year')} {long.cheapest}."
        )
