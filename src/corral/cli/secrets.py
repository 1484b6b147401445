"""`corral secret set`, `ls` and `rm`. A value is read from standard input or a prompt,
because a command line is visible to others."""

import getpass
import sys
from typing import Annotated

from cyclopts import Parameter

from corral.cli.head_options import Change, Common, declined
from corral.cli.printing import clock_text, note, print_json, say, show_table, table


def put(
    name: str,
    /,
    *,
    for_everybody: Annotated[bool | None, Parameter(negative="--for-me")] = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Set a secret from standard input, or from a prompt at a terminal.

    Args:
        name: Name of the secret, and of the environment variable in which jobs receive
            it: letters, digits and underscores.
        for_everybody: Make the secret available to jobs of all users (admins only), or
            with --for-me only to your jobs (default: an existing secret stays as it is,
            a new one is only for your jobs).
    """
    from corral.domain.errors import SpecInvalid

    if sys.stdin.isatty():
        value = getpass.getpass(f"value of {name}: ")
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise SpecInvalid(
            f"the value of the secret {name} is empty",
            hint=f"write it into a file, and run: corral secret set {name} < FILE",
        )
    with common.client() as client:
        client.set_secret(name, value, for_everybody=for_everybody)
    if common.json:
        print_json({"name": name})
    else:
        say(f"{name} is set")


def ls(*, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """List the names of secrets."""
    with common.client() as client:
        secrets = client.secrets()
    if common.json:
        print_json({"secrets": [secret.model_dump(mode="json") for secret in secrets]})
        return
    rows = table("NAME", "SET BY", "FOR JOBS OF", "WHEN")
    for secret in secrets:
        serves = "all users" if secret.for_everybody else secret.by
        rows.add_row(secret.name, secret.by, serves, clock_text(secret.at))
    show_table(rows)
    if not secrets:
        note("there are no secrets; to set one, run: corral secret set NAME")


def rm(name: str, /, *, common: Change = Change()) -> None:  # noqa: B008 - frozen
    """Remove a secret.

    Args:
        name: Name of the secret.
    """
    if not common.agreed(f"remove the secret {name}?", destroys=True):
        raise declined()
    with common.client() as client:
        client.drop_secret(name)
    if common.json:
        print_json({"name": name})
    else:
        say(f"{name} is removed")
