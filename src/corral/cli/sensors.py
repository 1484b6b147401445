"""Last sensor values of a node, as `corral node show` prints them."""

from typing import TYPE_CHECKING

from corral.cli.printing import say, show_pairs, show_table, table
from corral.domain.units import share_text, size_text

if TYPE_CHECKING:
    from corral.domain.telemetry import DiskSample, GpuSample, NodeSample, PortSample


def show_sensors(sample: "NodeSample") -> None:
    """Print one line for each GPU, then the sensor values of the machine."""
    if sample.gpus:
        say()
        titles = ("GPU", "USE", "MEMORY", "POWER", "HEAT", "ERRORS")
        rows = table(*titles, right=("GPU", "USE", "MEMORY", "POWER", "HEAT"))
        for gpu in sample.gpus:
            rows.add_row(
                str(gpu.index),
                share(gpu.utilisation) + " (pretend)" * gpu.pretend,
                of(gpu.memory_used_bytes, gpu.memory_total_bytes),
                _format_power(gpu),
                ""
                if gpu.temperature_celsius is None
                else f"{gpu.temperature_celsius:.0f} C",
                errors(gpu),
            )
        show_table(rows)
    say()
    show_pairs(
        [
            ("machine's CPU", share(sample.cpu_utilisation)),
            (
                "machine's memory",
                of(sample.memory_used_bytes, sample.memory_total_bytes),
            ),
            ("pressure", pressure(sample)),
            *[(f"disk {disk.path}", _format_disk(disk)) for disk in sample.disks],
            *[(f"port {port.name}", _format_port(port)) for port in sample.ports],
            ("clock", _format_clock_offset(sample.clock_offset_seconds)),
            ("no answer from", ", ".join(sample.silent)),
        ]
    )


def share(part: float | None) -> str:
    return "" if part is None else share_text(part)


def of(used_bytes: int | None, total_bytes: int | None) -> str:
    """Return for example: 12 GB of 80 GB. "" if either number is unknown."""
    if used_bytes is None or total_bytes is None:
        return ""
    return f"{size_text(used_bytes)} of {size_text(total_bytes)}"


def errors(gpu: "GpuSample") -> str:
    """Return the errors of a GPU, worst first; "none" if there are none."""
    if gpu.lost or gpu.silent:
        return "lost" if gpu.lost else "its driver does not answer"
    ecc = gpu.ecc_aggregate_uncorrected or gpu.ecc_volatile_uncorrected
    error_words = [f"{ecc} uncorrected ECC"] if ecc else []
    error_words += ["row remap failed"] * bool(gpu.remap_failed)
    error_words += ["row remap pending"] * bool(gpu.remap_pending)
    down = [str(link.link) for link in gpu.nvlinks if not link.up]
    error_words += [f"NVLink {', '.join(down)} down"] if down else []
    error_words += (
        [f"{gpu.ecc_volatile_corrected} corrected ECC"]
        if gpu.ecc_volatile_corrected
        else []
    )
    error_words += [f"{gpu.pcie_replays} PCIe replays"] if gpu.pcie_replays else []
    error_words += [f"slowed down: {', '.join(gpu.throttle)}"] if gpu.throttle else []
    return "; ".join(error_words) or "none"


def pressure(sample: "NodeSample") -> str:
    """Return the shares of the last 10 s in which tasks waited for CPU, memory or
    disks, as text."""
    pressure_shares = (
        ("CPU", sample.pressure_cpu),
        ("memory", sample.pressure_memory),
        ("disks", sample.pressure_io),
    )
    return ", ".join(
        f"{name} {share(pressure_share)}"
        for name, pressure_share in pressure_shares
        if pressure_share is not None
    )


def _format_power(gpu: "GpuSample") -> str:
    if gpu.power_watts is None:
        return ""
    limit = "" if gpu.power_limit_watts is None else f" of {gpu.power_limit_watts:.0f}"
    return f"{gpu.power_watts:.0f}{limit} W"


def _format_disk(disk: "DiskSample") -> str:
    if disk.silent:
        return "does not answer"
    free_text = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
    return f"{free_text}, read-only" if disk.read_only else free_text


def _format_port(port: "PortSample") -> str:
    pace = (
        ""
        if port.bits_per_second is None
        else f", {port.bits_per_second / 1e9:g} Gbit/s"
    )
    port_text = f"{port.kind}, {'up' if port.up else 'down'}{pace}"
    port_text += f", {port.errors} errors" if port.errors else ""
    falls = "once" if port.downs == 1 else f"{port.downs} times"
    return port_text + (f", went down {falls}" if port.downs else "")


def _format_clock_offset(offset_seconds: float | None) -> str:
    if offset_seconds is None:
        return ""
    direction = "ahead of" if offset_seconds > 0 else "behind"
    return f"{abs(offset_seconds) * 1000:.0f} ms {direction} the head's"
