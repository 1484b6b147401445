"""Check of the node's clock against the head's clock."""

from corral.agent.checks.messages import CheckFinding
from corral.domain.active_checks import CheckKind


def check_clock(offset_seconds: float | None) -> CheckFinding:
    """Report the node's clock offset from the head, as measured by the heartbeat with
    the shortest round trip."""
    if offset_seconds is None:
        return CheckFinding(
            kind=CheckKind.CLOCK, text="the head's clock is not known yet", ran=False
        )
    side = "ahead of" if offset_seconds > 0 else "behind"
    text = f"its clock is {abs(offset_seconds) * 1e3:.1f} ms {side} the head's"
    return CheckFinding(kind=CheckKind.CLOCK, text=text, value=offset_seconds, unit="s")
