"""Check of the node's clock against the head's clock."""

from corral.agent.checks.messages import CheckFinding
from corral.domain.active_checks import CheckKind


def check_clock(offset_seconds: float | None) -> CheckFinding:
    """Report the node's clock offset from the head, as measured by the heartbeat with
    the shortest round trip."""
    if offset_seconds is None:
        return CheckFinding(
            kind=CheckKind.CLOCK,
            text="the clock offset to the head is not measured yet",
            ran=False,
        )
    side = "ahead of" if offset_seconds > 0 else "behind"
    offset_text = f"{abs(offset_seconds) * 1e3:.1f} ms {side}"
    text = f"the node's clock is {offset_text} the head's clock"
    return CheckFinding(kind=CheckKind.CLOCK, text=text, value=offset_seconds, unit="s")
