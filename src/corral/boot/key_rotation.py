"""Rotation of the cluster's key, so that several heads agree and a crash loses nothing.

The store records the current key (`agreed`: "key"). A head that rotates writes the new
key into its file, then into the store, encrypted under the earlier key. Only then does
it name the new key as current. Every other head decrypts the new key. The leader
encrypts all values again that are still under earlier keys, at once and at each check,
so an interrupted rotation continues.
"""

import asyncio
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from corral.boot.secret_encryption import KEY_BYTES, KeyRing, KeyTrouble, rotation_entry
from corral.domain.errors import Conflict, Trouble
from corral.domain.units import DAY_SECONDS
from corral.domain.users import AuditEntry
from corral.ports.log import HeadLogger
from corral.ports.store import Store
from corral.wire.users import KeyRotated

CURRENT: Final = "key"
WRAPPED: Final = "key wrapped"
# of certificates: sealed among what heads agree on (boot/tls.py)
AUTHORITY: Final = "authority"
WRAPPED_SECONDS: Final = 3600.0  # that other heads have to take the fresh key
# that tokens of jobs by an earlier key are taken
RETIRED_SECONDS: Final = 30 * DAY_SECONDS
LOOK_SECONDS: Final = 10.0
log = HeadLogger("corral.boot")


@dataclass(slots=True, kw_only=True)
class HeadKeys:
    """Key ring of this head, kept in step with the current key in the store. `several`
    says whether other heads share the store."""

    store: Store
    ring: KeyRing
    wall: Callable[[], float]
    several: bool
    _sealed: str = ""  # the key with which all was found sealed

    async def begin(self) -> None:
        """Adopt the key that is current in the store.

        Raises: Conflict for a head that does not have that key; StoreTrouble,
        KeyTrouble, OSError.
        """
        current = await self.store.agree(CURRENT, self.ring.check)
        if await self._adopt_current_key(current):
            return
        # the file was replaced: secrets that it cannot open say so
        if not self.several:
            await self.store.change_agreed(CURRENT, was=current, now=self.ring.check)
            return
        raise Conflict(
            f"the key file {self.ring.path} differs from that of the other heads, so "
            "this head cannot read the secrets",
            hint=f"copy the file `key` of another head's directory to {self.ring.path} "
            "(chmod 600), or give that key file: corral up --key-file FILE",
        )

    async def keep(self, leads: Callable[[], bool]) -> None:
        """Check the keys every ten seconds until cancelled: follow a rotation and, as
        the leader, finish it."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look(leads=leads())
            except (Trouble, OSError) as trouble:
                log.warning("key_not_looked_at", error=str(trouble))

    async def look(self, *, leads: bool) -> None:
        """Adopt the current key, and remove keys that are too old. The leader also
        encrypts values again that are still under earlier keys.

        Raises: StoreTrouble, KeyTrouble, OSError.
        """
        current = await self.store.agreed(CURRENT)
        if current is not None:
            await self._adopt_current_key(current)
        if leads and self._sealed != self.ring.check:
            await self._seal_anew()
        now = self.wall()
        wrapped = await self.store.agreed(WRAPPED) if leads else None
        if (
            wrapped is not None
            and now - float(json.loads(wrapped)["at"]) >= WRAPPED_SECONDS
        ):
            await self.store.change_agreed(WRAPPED, was=wrapped, now=None)
        if forgotten_count := self.ring.forget_retired(now - RETIRED_SECONDS):
            log.info("keys_forgotten", number=forgotten_count)

    async def rotate(self, entry: AuditEntry) -> KeyRotated:
        """Encrypt everything again with a new key.

        Raises: Conflict if another rotation is running; StoreTrouble, KeyTrouble,
        OSError.
        """
        await self.look(leads=True)
        now, previous_key_id = self.wall(), self.ring.check
        new_key_id = self.ring.add(os.urandom(KEY_BYTES))
        wrapped = b64encode(self.ring.wrap(new_key_id)).decode()
        wrapped_key = json.dumps(
            {"key": new_key_id, "under": previous_key_id, "at": now, "wrapped": wrapped}
        )
        previous_wrapped = await self.store.agreed(WRAPPED)
        if not await self.store.change_agreed(
            WRAPPED, was=previous_wrapped, now=wrapped_key
        ) or not await self.store.change_agreed(
            CURRENT, was=previous_key_id, now=new_key_id, entry=entry
        ):
            raise Conflict(
                "another head has just rotated the key",
                hint="to rotate the key once more, run: corral key rotate",
            )
        self.ring.turn(new_key_id, now)
        await self.store.record(rotation_entry(previous_key_id, new_key_id, now))
        sealed, left_over = await self._seal_anew()
        log.info("key_rotated", key=new_key_id, sealed=sealed, left=left_over)
        return KeyRotated(
            key=new_key_id,
            sealed=sealed,
            unreadable=left_over,
            earlier_until=now + RETIRED_SECONDS,
        )

    async def _adopt_current_key(self, current: str) -> bool:
        """Use the current key for encryption. If this head does not have the key yet,
        take it from the store. Return whether the key could be used."""
        if self.ring.check == current:
            return True
        if not self.ring.has(current):
            agreed_text = await self.store.agreed(WRAPPED)
            agreed_key = json.loads(agreed_text) if agreed_text is not None else {}
            if agreed_key.get("key") != current or not self.ring.has(
                str(agreed_key.get("under"))
            ):
                return False
            self.ring.unwrap(current, b64decode(agreed_key["wrapped"]))
        self.ring.turn(current, self.wall())
        log.info("key_followed", key=current)
        return True

    async def _seal_anew(self) -> tuple[int, int]:
        """Encrypt again the values that are under an earlier key. Return how many
        secrets were encrypted again, and how many could not be opened by any key."""
        done = left_over = 0
        for name, _, _ in await self.store.secrets():
            sealed = await self.store.secret(name)
            if sealed is None or self.ring.is_current(sealed):
                continue
            try:
                resealed_secret = self.ring.seal(name, self.ring.open(name, sealed))
            except KeyTrouble:
                left_over += 1
                continue
            done += await self.store.seal_anew(name, was=sealed, now=resealed_secret)
        agreed_authority = await self.store.agreed(AUTHORITY)
        if agreed_authority is not None and not self.ring.is_current(
            b64decode(agreed_authority)
        ):
            with suppress(KeyTrouble):
                opened = self.ring.open(AUTHORITY, b64decode(agreed_authority))
                fresh_said = b64encode(self.ring.seal(AUTHORITY, opened)).decode()
                await self.store.change_agreed(
                    AUTHORITY, was=agreed_authority, now=fresh_said
                )
        self._sealed = self.ring.check
        return done, left_over
