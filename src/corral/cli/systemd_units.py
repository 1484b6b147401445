"""`corral unit install` and `remove`: the systemd unit."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.head_options import Change, Common, declined
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
        user: Install the unit for your user, which requires no root (default: for the
            whole machine, as root).
        print_only: Print the unit, without installing it.
    """
    from corral.boot import systemd_units as units

    unit = units.here(common.place, user=user, installs=not print_only)
    if print_only:
        say(unit.text.rstrip())
        return
    if not common.agreed(f"write {unit.file}?"):
        raise declined()
    enabled = units.install(unit)
    if common.json:
        print_json({"file": str(unit.file), "enabled": enabled})
        return
    say(
        f"the unit {unit.file} was written"
        f"{', and systemd starts it when the machine boots' if enabled else ''}"
    )
    _say_next(common, unit, enabled=enabled)


def _say_next(common: Common, unit: "Unit", *, enabled: bool) -> None:
    control = " ".join(unit.systemctl)
    steps = (
        [] if enabled else [f"{control} daemon-reload", f"{control} enable {unit.name}"]
    )
    note(
        "to let systemd take over now, without ending jobs, run: "
        f"{'; '.join([*steps, 'corral down --leave', ''])}{control} start {unit.name}"
    )
    if unit.user:
        note("to keep it running when you are logged out, run: loginctl enable-linger")


def remove(*, user: _Flag = False, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove the systemd unit of this directory. Running jobs continue.

    Args:
        user: Remove the unit of your user (default: that of the whole machine, as
            root).
    """
    from corral.boot import systemd_units as units

    unit = units.here(common.place, user=user)
    if not common.agreed(f"remove {unit.file}?", destroys=True):
        raise declined()
    removed = units.remove(unit)
    if common.json:
        print_json({"file": str(unit.file), "removed": removed})
    else:
        say(
            f"the unit {unit.file} "
            f"{'was removed' if removed else 'is missing or of another cluster'}"
        )
