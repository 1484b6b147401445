"""The commands key rotate and key generate."""

from pathlib import Path

from corral.cli.head_options import Change, Common
from corral.cli.printing import clock_text, note, print_json, say


def rotate(*, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Encrypt all secrets with a new key. Tokens of running jobs stay valid for at most
    30 days."""
    from corral.domain.errors import Conflict

    if not common.agreed("seal all secrets of the cluster with a fresh key?"):
        raise Conflict("nothing was changed")
    with common.client() as client:
        done = client.rotate_key()
    if common.json:
        print_json(done.model_dump(mode="json"))
        return
    say(f"the key is {done.key}; values encrypted again: {done.sealed}")
    if done.unreadable:
        note(
            f"secrets that no key opens: {done.unreadable}; set them again: corral secret set NAME"
        )
    note(
        f"tokens of jobs that run now are taken until {clock_text(done.earlier_until)}"
    )
    note("backups made before hold the earlier key: make a fresh one: corral backup")


def generate(file: Path, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Create a key pair for encrypted backups: the private identity is written to FILE,
    and the public recipient is printed.

    Args:
        file: File for the identity, which decrypts the backups.
    """
    from corral.boot.backup_sealing import generate as make

    recipient = make(file)
    if common.json:
        print_json({"file": str(file), "recipient": recipient})
        return
    say(recipient)
    note(
        f"keep {file} away from the head's machine; back up by: corral backup --recipient KEY"
    )
