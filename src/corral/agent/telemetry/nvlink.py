"""The NVLinks of one GPU.

Each link takes four calls to the driver, and there are 18 links. The counters of the
links are read again only when their total has risen, and every minute.
"""

import time
from dataclasses import dataclass
from typing import Final

import pynvml  # type: ignore[import-untyped]

from corral.agent.telemetry.nvml_call import NvmlCall
from corral.domain.telemetry import NvLink

AGAIN_SECONDS: Final = 60.0
_TOTALS: Final = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)


@dataclass(slots=True)
class NvLinks:
    asked: NvmlCall
    _count: int | None = None
    _read_at: float = float("-inf")
    _totals: tuple[int | None, ...] = ()
    _newest: tuple[NvLink, ...] = ()

    def read(self) -> tuple[NvLink, ...]:
        """Return the state of each NVLink. Raises: GpuLost, DriverGone."""
        if self._count is None:
            link_count = self.asked.fields(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)[0]
            self._count = min(link_count or 0, pynvml.NVML_NVLINK_MAX_LINKS)
        if not self._count:
            return ()
        totals = tuple(self.asked.fields(*_TOTALS))
        now = time.monotonic()
        if totals != self._totals or now - self._read_at >= AGAIN_SECONDS:
            self._totals, self._read_at = totals, now
            links = (self._read_link(link) for link in range(self._count))
            self._newest = tuple(link for link in links if link is not None)
        return self._newest

    def _read_link(self, link: int) -> NvLink | None:
        up = self.asked.ask("NvLinkState", link)
        if up is None:
            return None
        return NvLink(
            link=link,
            up=bool(up),
            crc_errors=self._error_count(link, pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT),
            replays=self._error_count(link, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
            recoveries=self._error_count(link, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY),
        )

    def _error_count(self, link: int, counter: int) -> int:
        return int(self.asked.ask("NvLinkErrorCounter", link, counter) or 0)
