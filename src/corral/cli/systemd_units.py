"""`corral service install` and `remove`: the systemd unit."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.head_options import Change, Common
from corral.cli.printing import note, print_json, say

if TYPE_CHECKING:
    from corral.boot.systemd_units import Unit

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def install(
    *,
    user: _Flag = False,
    print_only: Annotated[
        bool, Parameter(name="--print", negative="", show_default=False)
    ] = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Let systemd keep running the head of this directory, or the agent of a joined
    machine.

    Args:
        user: Use the systemd of your user, without root.
        print_only: Print the unit, and change nothing.
    """
    from corral.boot import systemd_units as service
    from corral.domain.errors import Conflict

    unit = service.here(common.place, user=user, installs=not print_only)
    if print_only:
        say(unit.text.rstrip())
        return
    if not common.agreed(f"write {unit.file}?"):
        raise Conflict("nothing was changed")
    enabled = service.install(unit)
    if common.json:
        print_json({"file": str(unit.file), "enabled": enabled})
        return
    say(f"{unit.file} is written{', and begins with the machine' if enabled else ''}")
    _say_next(common, unit, enabled=enabled)


def _say_next(common: Common, unit: "Unit", *, enabled: bool) -> None:
    control = " ".join(unit.systemctl)
    steps = (
        [] if enabled else [f"{control} daemon-reload", f"{control} enable {unit.name}"]
    )
    note(
        f"to hand over what runs now: {'; '.join([*steps, 'corral down --leave', ''])}"
        f"{control} start {unit.name}"
    )
    if unit.user:
        note("to run it while you are not logged in: loginctl enable-linger")


def remove(*, user: _Flag = False, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove the systemd unit of this directory. Running jobs continue.

    Args:
        user: Use the systemd of your user.
    """
    from corral.boot import systemd_units as service
    from corral.domain.errors import Conflict

    unit = service.here(common.place, user=user)
    if not common.agreed(f"remove {unit.file}?", destroys=True):
        raise Conflict("nothing was changed")
    removed = service.remove(unit)
    if common.json:
        print_json({"file": str(unit.file), "removed": removed})
    else:
        say(
            f"{unit.file} is {'removed' if removed else 'not there, or of another directory'}"
        )
