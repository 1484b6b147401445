"""Routes of secrets. The value of a secret is returned only to a node that needs it."""

from contextlib import AbstractContextManager, ExitStack

from fastapi import APIRouter

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.jobs import Asker, Within
from corral.api.route_rights import ADMINS
from corral.api.secret_rights import KnownSecrets, known_secrets
from corral.domain.errors import Forbidden, NotFound, SpecInvalid
from corral.domain.quota import Quota
from corral.wire import api
from corral.wire.field_readers import is_secret_name

router = APIRouter()


@router.get("/v1/secrets")
async def secrets(house: Within, caller: Asker) -> api.Secrets:
    """Return the names of the caller's own secrets and of the secrets for all users.
    Admins get the names of all secrets."""
    known_names = await known_secrets(house.control.store)
    return api.Secrets(
        secrets=[
            api.Secret(
                name=name,
                by=owner_name,
                at=changed_at,
                for_everybody=name in known_names.for_everybody,
            )
            for name, owner_name, changed_at in await house.control.store.secrets()
            if _is_visible(known_names, name, caller)
        ]
    )


@router.put("/v1/secrets/{name}", status_code=204)
async def put_secret(
    name: str, body: api.SecretValue, house: Within, caller: Asker
) -> None:
    """Store the secret, encrypted. Only an admin may overwrite a secret of another
    user, or a secret for all users."""
    if not is_secret_name(name):
        raise SpecInvalid(
            f"{name[:80]!r} is not a valid name of a secret and of its environment variable",
            hint="use letters, digits and _, for example HF_TOKEN",
        )
    await _check_secret(house, name, caller)
    if body.for_everybody and caller.role not in ADMINS:
        raise Forbidden(
            f"only an admin may set a secret for the jobs of all users; {caller.name} has the role "
            f"{caller.role}",
            hint=f"to set it for your own jobs, run: corral secret set {name}; or ask an admin",
        )
    control = house.control
    sealed = house.settings.seals.seal(name, body.value.encode())
    now = control.clock.wall()
    entry = caller.entry(now, on=name, detail=_SHARED_WORDS[body.for_everybody])
    with await _reserve_secret_quota(house, caller, name, len(sealed)):
        await control.store.put_secret(
            name,
            sealed,
            by=caller.name,
            at=now,
            for_everybody=body.for_everybody,
            entry=entry,
        )


async def _reserve_secret_quota(
    house: House, caller: Caller, name: str, size: int
) -> AbstractContextManager[object]:
    """Reserve the secret's count and bytes in its user's quotas until the context ends.
    If it replaces a secret of the user, only the difference is reserved.

    Raises: OverQuota.
    """
    store, quotas = house.control.store, house.quotas.of_caller(caller)
    user_holdings = await store.holdings(caller.name)
    owners = {secret_name: owner for secret_name, owner, _ in await store.secrets()}
    previous_secret = (
        await store.secret(name) if owners.get(name) == caller.name else None
    )
    needed = {
        Quota.SECRETS: int(previous_secret is None),
        Quota.SECRET_BYTES: size - len(previous_secret or b""),
    }
    used_amounts = {
        Quota.SECRETS: user_holdings.secrets,
        Quota.SECRET_BYTES: user_holdings.secret_bytes,
    }
    with ExitStack() as stack:
        for quota, amount in needed.items():
            desk = house.quotas.taking(
                quotas, quota, used=used_amounts[quota], asked=max(0, amount)
            )
            stack.enter_context(desk)
        return stack.pop_all()


_SHARED_WORDS = {None: "", True: "for everybody", False: "for its owner alone"}


@router.delete("/v1/secrets/{name}", status_code=204)
async def drop_secret(name: str, house: Within, caller: Asker) -> None:
    known_names = await _check_secret(house, name, caller)
    entry = caller.entry(house.control.clock.wall(), on=name)
    if not await house.control.store.drop_secret(name, entry=entry):
        visible = [
            owner
            for owner in known_names.owners
            if _is_visible(known_names, owner, caller)
        ]
        raise NotFound("secret", name[:80], visible, see="corral secret ls")


async def _check_secret(house: House, name: str, caller: Caller) -> KnownSecrets:
    """Check that the caller may change the secret. Only an admin may change a secret
    for all users, because it takes effect in the jobs of all users. Return the names
    and owners of all secrets.

    Raises: Forbidden.
    """
    known_names = await known_secrets(house.control.store)
    if name in known_names.for_everybody and caller.role not in ADMINS:
        raise Forbidden(
            f"only an admin may change the secret {name}: it is for the jobs of all users",
            hint="set your own secret under another name, or ask an admin",
        )
    caller.check_owner(known_names.owners.get(name, caller.name), f"secret {name}")
    return known_names


def _is_visible(known: KnownSecrets, name: str, caller: Caller) -> bool:
    return caller.role in ADMINS or known.serves(name, caller.name)
