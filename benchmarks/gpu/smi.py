"""What nvidia-smi prints of a GPU beside what Corral's agent reads of it. Pure."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the result page. `verdict`: ok, differs, or not run."""

    what: str
    expected: str
    seen: str
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of nvidia-smi and that of a sample. Values may differ by `slack`, in the sample's
    unit: the two are read at different moments. `scale`: the sample's unit in nvidia-smi's."""

    smi: str
    sample: str
    scale: float = 1.0
    slack: float = 0.0


FIELDS: Final = (
    Field(smi="memory.total", sample="memory_total_bytes", scale=MIB, slack=2 * MIB),
    Field(smi="memory.used", sample="memory_used_bytes", scale=MIB, slack=64 * MIB),
    Field(smi="utilization.gpu", sample="utilisation", scale=0.01, slack=0.15),
    Field(smi="power.draw", sample="power_watts", slack=40.0),
    Field(smi="power.limit", sample="power_limit_watts", slack=1.0),
    Field(smi="temperature.gpu", sample="temperature_celsius", slack=5.0),
    Field(smi="temperature.memory", sample="memory_temperature_celsius", slack=6.0),
    Field(smi="clocks.sm", sample="sm_clock_mhz", slack=400.0),
    Field(smi="clocks.mem", sample="memory_clock_mhz", slack=400.0),
    Field(smi="pcie.link.gen.max", sample="pcie_generation_most"),
    Field(smi="pcie.link.width.max", sample="pcie_width_most"),
    Field(
        smi="ecc.errors.uncorrected.volatile.total", sample="ecc_volatile_uncorrected"
    ),
    Field(smi="ecc.errors.corrected.volatile.total", sample="ecc_volatile_corrected"),
)
QUERY: Final = ("uuid", *(field.smi for field in FIELDS))


def read_table(text: str) -> list[dict[str, str]]:
    """Return the rows of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(QUERY, row, strict=True)) for row in rows if row]


def compare(smi: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each field of one GPU; what one of the two does not have is no difference.

    `samples` are those of all GPUs of the node; they are matched by their UUID.
    """
    sample = next((one for one in samples if one["uuid"] == smi["uuid"]), None)
    if sample is None:
        return [
            Row(
                what="uuid", expected=smi["uuid"], seen="no such GPU", verdict="differs"
            )
        ]
    return [
        _compared(field, smi[field.smi], sample.get(field.sample)) for field in FIELDS
    ]


def _compared(field: Field, printed: str, seen: float | None) -> Row:
    try:
        expected: float | None = float(printed) * field.scale
    except ValueError:  # "[N/A]", "[Not Supported]"
        expected = None
    if expected is None or seen is None:
        alike = expected is None and seen is None
        return Row(
            what=field.smi,
            expected=printed,
            seen="no reading" if seen is None else f"{seen:g}",
            verdict="ok" if alike else "differs",
        )
    verdict = "ok" if abs(expected - seen) <= field.slack else "differs"
    return Row(
        what=field.smi, expected=f"{expected:g}", seen=f"{seen:g}", verdict=verdict
    )


def page(title: str, facts: Sequence[str], stages: Mapping[str, Sequence[Row]]) -> str:
    """Return the result page in Markdown."""
    lines = [f"# {title}", "", " ".join(facts), ""]
    for name, rows in stages.items():
        lines += [f"## {name}", "", "| what | expected | seen | verdict |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            f"| {row.what} | {row.expected} | {row.seen} | {row.verdict} |"
            for row in rows
        ]
        lines.append("")
    return "\n".join(lines)
