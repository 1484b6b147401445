"""Base of a simulated world: its time, randomness and log."""

import asyncio
import traceback
from collections import defaultdict, deque
from hashlib import blake2b
from random import Random

from corral.domain.ids import JobId
from corral.domain.retention import Retention
from corral.simulate.clock import SimulatedClock
from corral.simulate.engine_sleep import SimulatedEngines
from corral.simulate.evidence import Evidence
from corral.simulate.hang_behaviour import HangBehaviour
from corral.simulate.network import SimulatedNetwork
from corral.simulate.rank_behaviour import RankBehaviour
from corral.simulate.replica_behaviour import ProbeBehaviour
from corral.simulate.virtual_loop import VirtualLoop

KEPT_LINES = 60
# Worlds from this seed on have services; below it, seeds mean what they always meant.
FIRST_WITH_SERVICES = 1_000_000
# Worlds from this seed on have jobs that hang, and no services.
FIRST_WITH_HANGS = 2_000_000
ALWAYS_SECONDS = 1e9  # longer than any world: no job gets too old


class Stage:
    """The clock, the random streams and the log of the simulated world of one seed. All
    randomness comes from these named streams. `broken` is a pair (name of the first
    broken invariant, what happened)."""

    def __init__(self, seed: int, *, verbose: bool) -> None:
        self.seed = seed
        self.broken: tuple[str, str] | None = None
        self._verbose = verbose
        self._digest = blake2b(digest_size=8)
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.loop = VirtualLoop(self._report_uncaught_error)
        self.clock = SimulatedClock(self.loop, self.stream("clock"))
        self.network = SimulatedNetwork(self.loop, self.stream("network"))
        self.evidence = Evidence()
        self.lives: dict[str, RankBehaviour] = {}  # by the job's name
        self.hangs: dict[str, HangBehaviour] = {}  # by the job's name
        self.probes: dict[str, ProbeBehaviour] = {}  # of replicas, by the job's name
        self.engines = SimulatedEngines(self.stream, self.loop.later, self.tell)
        # how often each has, by itself
        self.failed: dict[JobId, int] = defaultdict(int)
        self.hung: dict[JobId, int] = defaultdict(int)  # in how many attempts
        self.chance = self.stream("scene")
        self.gpus = self.chance.choice([1, 2, 2, 4, 8])  # of each node
        self.shares = self.chance.random() < 0.4
        self.has_requests = self.stream("wishful").random() < 0.5
        self.retention = draw_retention(self.stream("retention"))
        self.has_hangs = seed >= FIRST_WITH_HANGS
        self.has_services = FIRST_WITH_SERVICES <= seed < FIRST_WITH_HANGS
        # whether replicas sleep, and the demand on them often changes
        self.has_sleepers = self.has_services and self.stream("sleeps").random() < 0.5

    # -- time and chance -------------------------------------------------------------------------

    def stream(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def now(self) -> float:
        return self.loop.time()

    async def nap(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- reports ---------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        line = f"{self.now():9.3f}  {text}"
        self._digest.update(line.encode())
        self._lines.append(line)
        if self._verbose:
            print(line)

    def breach(self, rule: str, text: str) -> None:
        """Record that an invariant (`rule`) is broken. The first breach ends the world."""
        if self.broken is None:
            self.broken = (rule, text)
            self.tell(f"BREACH of invariant {rule}: {text}")
            self.loop.stop()

    def digest(self) -> str:
        """Return a digest of all log lines."""
        return self._digest.hexdigest()

    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def _report_uncaught_error(self, error: BaseException) -> None:
        last_frame = traceback.extract_tb(error.__traceback__)[-1]
        self.breach("bug", f"{error!r} at {last_frame.filename}:{last_frame.lineno}")


def draw_retention(chance: Random) -> Retention:
    """Return a random retention of jobs. In most worlds no job is deleted; in some,
    ended jobs are deleted by age, by number, or both."""
    seconds = chance.choice([ALWAYS_SECONDS] * 4 + [5.0, 25.0])
    return Retention(seconds=seconds, jobs=chance.choice([1000] * 4 + [1, 3]))
