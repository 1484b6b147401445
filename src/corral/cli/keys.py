"""The commands key rotate and key generate."""

from pathlib import Path

from corral.cli.head_options import Change, Common, declined
from corral.cli.printing import clock_text, note, print_json, say


def rotate(*, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Encrypt all secrets with a new key. Tokens of running jobs stay valid for at most
    30 days."""
    if not common.agreed("encrypt all secrets of the cluster with a new key?"):
        raise declined()
    with common.client() as client:
        done = client.rotate_key()
    if common.json:
        print_json(done.model_dump(mode="json"))
        return
    say(f"the new key is {done.key}; values encrypted with it: {done.sealed}")
    if done.unreadable:
        note(
            f"secrets that cannot be decrypted: {done.unreadable}; set each of them "
            "again: corral secret set NAME"
        )
    note(
        "the tokens of jobs that run now stay valid until "
        f"{clock_text(done.earlier_until)}"
    )
    note("earlier backups contain the old key; to make a new one, run: corral backup")


def generate(file: Path, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Create a key pair for encrypted backups: the private identity is written to FILE,
    and the public recipient is printed.

    Args:
        file: New file to write the private identity to; `corral restore --identity`
            needs it.
    """
    from corral.boot.backup_sealing import generate as make

    recipient = make(file)
    if common.json:
        print_json({"file": str(file), "recipient": recipient})
        return
    say(recipient)
    note(
        f"keep {file} on another machine than the head; to make an encrypted backup, "
        f"run: corral backup --recipient {recipient}"
    )
