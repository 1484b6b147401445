"""The command plan prices: the hourly prices of GPUs, and users' own price lists."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.files import check_writable, read_text, unwritable
from corral.cli.printing import note, print_json, say, show_table, table
from corral.domain.errors import NotFound, Refusal, SpecInvalid, Trouble

if TYPE_CHECKING:
    from corral.catalog.prices import PriceList

_CSV = Parameter(name="--csv", negative="", show_default=False)
_JSON = Parameter(
    name="--json", negative="", show_default=False, help="Answer in JSON."
)
SOURCE = "gpuhunt"


class GpuhuntMissing(Refusal):
    """The library gpuhunt, which fetches offers, is not installed."""

    code = "gpuhunt_missing"


class OffersUnreachable(Trouble):
    """The clouds' offers cannot be fetched now."""

    code = "offers_unreachable"


def prices(
    gpu: str | None = None,
    /,
    *,
    prices: Path | None = None,
    fetch: Path | None = None,
    csv: Annotated[bool, _CSV] = False,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """List prices of GPUs by the hour: on demand, reserved and spot.

    Lists are dated, and prices change weekly: fetch current prices, or write your own
    offers into a file and plan with --prices FILE.

    Args:
        gpu: Only this type of GPU.
        prices: File with your own price list.
        fetch: Fetch the cheapest offers of clouds through gpuhunt into this file.
        csv: Print the list in the form that --prices reads.
    """
    from corral.catalog.devices import device

    check_writable(fetch)
    only = device(gpu).name if gpu else None
    if fetch is not None:
        count = _write_fetched_prices(fetch, only)
        if json:
            print_json({"offers": count, "file": str(fetch)})
        else:
            say(f"{count} offers were written to {fetch}")
        return
    listed = read_prices_of(prices)
    if csv:
        _show_list(listed, only)
        return
    rents, sales = list(_rent_rows(listed, only)), list(_sale_rows(listed, only))
    if json:
        print_json({"prices": rents, "sales": sales})
    elif rents or sales:
        _print_prices(rents, sales)
    else:
        say(
            f"no price of {only} is known; an estimate from an H100's price: "
            f"corral plan cost --gpu {only}"
        )


def _print_prices(rents: list[dict[str, Any]], sales: list[dict[str, Any]]) -> None:
    if rents:
        price_table = table(
            "gpu",
            "cloud",
            "kind",
            "USD a GPU-hour",
            "date",
            "source",
            right=("USD a GPU-hour",),
        )
        for row in rents:
            usd = f"{row['usd_per_gpu_hour']:.2f}"
            price_table.add_row(
                row["gpu"], row["cloud"], row["kind"], usd, row["date"], row["source"]
            )
        show_table(price_table)
    if sales:
        if rents:
            say()
        price_table = table("gpu", "to buy", "USD", "date", "source", right=("USD",))
        for row in sales:
            usd = f"{row['usd']:,.0f}"
            price_table.add_row(
                row["gpu"], row["what"], usd, row["date"], row["source"]
            )
        show_table(price_table)


def _show_list(listed: "PriceList", only: str | None) -> None:
    import sys
    from csv import writer

    from corral.catalog.facts import COLUMNS

    rows = writer(sys.stdout, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(
        line for line in listed.lines() if only in (None, line[0].partition(":")[2])
    )


def read_prices_of(path: Path | None) -> "PriceList":
    """Return the prices of the user's own list, completed by those of the catalog;
    without a path, only those of the catalog.

    Raises: NotFound, FileUnreadable, SpecInvalid.
    """
    from corral.catalog.prices import FORM as PRICES
    from corral.catalog.prices import prices as known
    from corral.catalog.prices import read_prices

    if path is None:
        return known()
    text = read_text(path, "a price list", hint=PRICES)
    try:
        return read_prices(text.splitlines()).or_else(known())
    except Refusal as error:
        raise SpecInvalid(f"{path}: {error.message}", hint=error.hint) from error


def _rent_rows(listed: "PriceList", only: str | None) -> Iterator[dict[str, Any]]:
    fit = (rent for rent in listed.rents if only in (None, rent.device))
    for rent in sorted(
        fit, key=lambda one: (one.device, one.kind, one.usd_per_gpu_hour)
    ):
        yield {
            "gpu": rent.device,
            "cloud": rent.cloud,
            "kind": rent.kind,
            "usd_per_gpu_hour": rent.usd_per_gpu_hour,
            "instance": rent.instance,
            "region": rent.region,
            "date": rent.date.isoformat(),
            "source": rent.source,
        }


def _sale_rows(listed: "PriceList", only: str | None) -> Iterator[dict[str, Any]]:
    fit = (sale for sale in listed.sales if only in (None, sale.device))
    for sale in sorted(fit, key=lambda one: (one.device, one.what)):
        yield {
            "gpu": sale.device,
            "what": sale.what,
            "usd": sale.usd,
            "date": sale.date.isoformat(),
            "source": sale.source,
        }


def _write_fetched_prices(path: Path, only: str | None) -> int:
    """Fetch the cheapest offers into a price list, and return their number. `only`: the
    only device to fetch. Raises: GpuhuntMissing, OffersUnreachable, Conflict."""
    import csv

    from corral.catalog.facts import COLUMNS
    from corral.catalog.prices import RENT_UNIT

    offers = list(cheapest(_query_cloud_offers(), only))
    day = datetime.fromtimestamp(SystemClock().wall(), tz=UTC).date().isoformat()
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(COLUMNS)
            for subject, kind, usd in offers:
                rows.writerow((subject, kind, f"{usd:.4f}", RENT_UNIT, SOURCE, day))
    except OSError as error:
        raise unwritable(path, error.strerror) from error
    return len(offers)


def _query_cloud_offers() -> Iterable[Any]:
    try:
        import gpuhunt
    except ImportError as error:
        hint = "run: pip install 'corral[prices]'; or write your own price list"
        raise GpuhuntMissing(
            "prices cannot be fetched: the Python package gpuhunt is not installed",
            hint=hint,
        ) from error
    try:
        offers: Iterable[Any] = gpuhunt.query(min_gpu_count=1)
    except Exception as error:  # each cloud's client has errors of its own
        hint = "try again later, or leave out --fetch to use the prices of Corral's catalog"
        raise OffersUnreachable(
            f"gpuhunt could not fetch offers: {error}", hint=hint
        ) from error
    return offers


def cheapest(
    offers: Iterable[Any], only: str | None
) -> Iterator[tuple[str, str, float]]:
    """Return CLOUD:GPU, the kind of price and the USD per GPU-hour of the cheapest
    offers.

    Only the cheapest offer of each CLOUD:GPU and kind of price is returned. GPUs that
    are not in the catalog are reported and left out.
    """
    from corral.catalog.devices import device

    lowest_prices: dict[tuple[str, str], float] = {}
    unknown: set[str] = set()
    for offer in offers:
        if not offer.gpu_count or not offer.price:
            continue
        name = f"{offer.gpu_name} {offer.gpu_memory:.0f}GB"
        try:
            device_name = device(name).name
        except NotFound:
            try:
                device_name = device(str(offer.gpu_name)).name
            except NotFound:
                unknown.add(name)
                continue
        if only not in (None, device_name):
            continue
        key = (f"{offer.provider}:{device_name}", "spot" if offer.spot else "on_demand")
        usd = float(offer.price) / offer.gpu_count
        lowest_prices[key] = min(usd, lowest_prices.get(key, usd))
    if unknown:
        note(f"left out, because not in the catalog: {', '.join(sorted(unknown))}")
    for (subject, kind), usd in sorted(lowest_prices.items()):
        yield subject, kind, usd
