"""Network ports as sysfs shows them: Ethernet, InfiniBand, RoCE. Paths are below a
root, for tests.

Source: Linux, Documentation/ABI/testing/sysfs-class-net*,
stable/sysfs-class-infiniband.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.agent.sysfs import number_in, text_in
from corral.domain.telemetry import PortSample

_WORD_BYTES: Final = 4  # InfiniBand counts data in words
_RDMA_ERRORS: Final = (
    "symbol_error",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
)


def ports(root: Path) -> tuple[PortSample, ...]:
    """Return all ports with hardware behind them: no bridges, tunnels or loopback."""
    return (
        *_ethernet_ports(root / "sys/class/net"),
        *_rdma_ports(root / "sys/class/infiniband"),
    )


def _ethernet_ports(folder: Path) -> Iterator[PortSample]:
    for port in _list_folder(folder):
        if not (port / "device").exists() or (number_in(port / "type") or 0) != 1:
            continue  # 1 is ARPHRD_ETHER: IP over InfiniBand is its RDMA port's
        statistics, megabits = port / "statistics", number_in(port / "speed")
        yield PortSample(
            name=port.name,
            kind="ethernet",
            up=text_in(port / "operstate") in ("up", "unknown"),
            bits_per_second=megabits * 1e6
            if megabits is not None and megabits > 0
            else None,
            received_bytes=number_in(statistics / "rx_bytes") or 0,
            sent_bytes=number_in(statistics / "tx_bytes") or 0,
            errors=sum(
                number_in(statistics / name) or 0 for name in ("rx_errors", "tx_errors")
            ),
            downs=number_in(port / "carrier_down_count") or 0,
        )


def _rdma_ports(folder: Path) -> Iterator[PortSample]:
    for device in _list_folder(folder):
        for port in _list_folder(device / "ports"):
            counters = port / "counters"
            yield PortSample(
                name=f"{device.name}/{port.name}",
                kind="roce"
                if text_in(port / "link_layer") == "Ethernet"
                else "infiniband",
                up=text_in(port / "state").endswith("ACTIVE"),
                bits_per_second=_parse_bit_rate(text_in(port / "rate")),
                received_bytes=_WORD_BYTES
                * (number_in(counters / "port_rcv_data") or 0),
                sent_bytes=_WORD_BYTES * (number_in(counters / "port_xmit_data") or 0),
                errors=sum(number_in(counters / name) or 0 for name in _RDMA_ERRORS),
                downs=number_in(counters / "link_downed") or 0,
            )


def _parse_bit_rate(text: str) -> float | None:
    """Parse a rate such as "400 Gb/sec (4X NDR)" into bit/s."""
    with suppress(ValueError, IndexError):
        return float(text.split()[0]) * 1e9
    return None


def _list_folder(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []
