"""Classes of failures, with their texts and advice."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.failure_advice import NEXT_STEPS, NextStep
from corral.domain.ids import NodeId


class FailureKind(StrEnum):
    """Class of a failure. What a class means, and what helps, is in FAILURES."""

    PROGRAM = "program-error"
    MODULE = "missing-module"
    SYNTAX = "syntax-error"
    USAGE = "wrong-arguments"
    COMMAND = "command-not-found"
    FILES = "missing-file"
    PERMISSION = "permission-denied"
    GPU_MEMORY = "gpu-out-of-memory"
    HOST_MEMORY = "out-of-memory"
    SHARED_MEMORY = "shared-memory-full"
    DISK_FULL = "disk-full"
    STORAGE = "storage-fault"
    LIMITS = "limit-reached"
    GPU_PROGRAM = "gpu-program-error"
    GPU_FAULT = "gpu-fault"
    GPU_MISSING = "gpu-not-usable"
    CRASH = "crash"
    KILLED = "killed"
    PEER = "peer-lost"
    HANG = "collective-timeout"
    PORT = "port-taken"
    NETWORK = "network-unreachable"
    FABRIC = "fabric-fault"
    ACCESS = "access-denied"
    DATA = "bad-data"
    CHECKPOINT = "bad-checkpoint"
    NUMERIC = "not-a-number"
    INTERRUPTED = "interrupted"
    SETUP = "setup-failed"
    NODE_LOST = "node-lost"
    NODE_REBOOTED = "node-rebooted"
    CLUSTER = "cluster-fault"
    RATE_LIMIT = "rate-limited"
    BINARY = "binary-mismatch"
    RENDEZVOUS = "rendezvous-timeout"
    LOCKED_MEMORY = "locked-memory-limit"
    VARIABLE = "unset-variable"
    PACKAGE = "no-such-package"
    LIBRARY = "missing-library"
    INPUT = "waits-for-input"
    CHILD = "child-failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Explanation of a failure class.

    `text` completes "it failed: ...". `next` is what the user can do; {job} in it
    stands for the job's id. `is_infra`: the infrastructure retry budget is always
    charged, whatever the exit was.
    """

    text: str
    next: str
    is_infra: bool = False


FAILURES: Final[Mapping[FailureKind, Meaning]] = {
    FailureKind.PROGRAM: Meaning(
        "the program raised an error", "read the end of its log and mend the program"
    ),
    FailureKind.MODULE: Meaning(
        "a module cannot be imported",
        "install it in setup:, or in the image; then submit again",
    ),
    FailureKind.SYNTAX: Meaning(
        "the program cannot be read",
        "mend the line that its log names; then submit again",
    ),
    FailureKind.USAGE: Meaning(
        "the program does not take these arguments",
        "compare run: with what its --help says",
    ),
    FailureKind.COMMAND: Meaning(
        "the command cannot be run",
        "check its name and PATH in run:, and that it is executable",
    ),
    FailureKind.FILES: Meaning(
        "a file is not there",
        "check the path; workdir: carries what .gitignore does not exclude",
    ),
    FailureKind.PERMISSION: Meaning(
        "a file may not be used", "check owner and mode of the path that its log names"
    ),
    FailureKind.GPU_MEMORY: Meaning(
        "the GPU's memory is full",
        "use a smaller micro batch, recomputation or more GPUs: corral plan model shows what fits",
    ),
    FailureKind.HOST_MEMORY: Meaning(
        "the memory it asked for is full",
        "ask for more with resources: {memory: ...}, or use fewer data workers; check ulimit -v",
    ),
    FailureKind.SHARED_MEMORY: Meaning(
        "/dev/shm is full",
        "use fewer data workers, or a larger /dev/shm: df -h /dev/shm shows its size",
    ),
    FailureKind.DISK_FULL: Meaning(
        "a disk is full",
        "make room on the disk that it writes to (df -h, quota), or keep fewer checkpoints",
    ),
    FailureKind.STORAGE: Meaning(
        "storage answered with an error",
        "it begins again elsewhere; look at the mount on the node: corral node show",
        is_infra=True,
    ),
    FailureKind.LIMITS: Meaning(
        "a limit of the system is reached", "open fewer files, or start fewer processes"
    ),
    FailureKind.GPU_PROGRAM: Meaning(
        "the program used the GPU wrongly",
        "run it with CUDA_LAUNCH_BLOCKING=1 to find the kernel; on several GPUs: compute-sanitizer",
    ),
    FailureKind.GPU_FAULT: Meaning(
        "a GPU or its driver is broken",
        "it starts again elsewhere; corral node show shows its health",
        is_infra=True,
    ),
    FailureKind.GPU_MISSING: Meaning(
        "no GPU can be used there",
        "check that PyTorch is built for the driver: corral doctor gpu; ask for gpu: in resources",
    ),
    FailureKind.CRASH: Meaning(
        "the program crashed",
        "run it under gdb, or with PYTHONFAULTHANDLER=1 if it is Python; check compiled parts",
    ),
    FailureKind.KILLED: Meaning(
        "a process, a person or the kernel killed it",
        "look for timeout, kill or scancel in its scripts, and for who stopped it: corral audit; "
        "if no user did, dmesg on the node shows whether its memory was full",
    ),
    FailureKind.PEER: Meaning(
        "another rank was lost", "look at the rank that ended first: corral logs --rank"
    ),
    FailureKind.HANG: Meaning(
        "a rank did not come to a collective",
        "look at what the named rank did last; all ranks must call the same collectives",
    ),
    FailureKind.PORT: Meaning(
        "a port is taken",
        "use MASTER_PORT, which Corral keeps for the job, or another port",
    ),
    FailureKind.NETWORK: Meaning(
        "an address cannot be reached",
        "check it, and the node's network: corral doctor net",
    ),
    FailureKind.FABRIC: Meaning(
        "the network between its ranks failed",
        "it begins again; corral doctor net tests the links of the node",
        is_infra=True,
    ),
    FailureKind.ACCESS: Meaning(
        "access was denied",
        "check the token in secrets: and that it may read what is asked for",
    ),
    FailureKind.DATA: Meaning(
        "the data cannot be read",
        "check the file that it was reading: it may be cut off, damaged or of another format",
    ),
    FailureKind.CHECKPOINT: Meaning(
        "a checkpoint cannot be loaded",
        "load another: it may be cut off or damaged; corral checkpoints lists those that verify",
    ),
    FailureKind.NUMERIC: Meaning(
        "a value is not a number",
        "lower the learning rate, clip gradients; check the last batch",
    ),
    FailureKind.INTERRUPTED: Meaning(
        "it was interrupted", "if not intended, submit it again"
    ),
    FailureKind.SETUP: Meaning(
        "its setup failed", "mend setup: by what its log says; then submit again"
    ),
    FailureKind.NODE_LOST: Meaning(
        "the node is gone",
        "nothing: it begins again elsewhere, from its newest save or else from its start",
        is_infra=True,
    ),
    FailureKind.NODE_REBOOTED: Meaning(
        "the node restarted",
        "nothing: it begins again, from its newest save or else from its start",
        is_infra=True,
    ),
    FailureKind.CLUSTER: Meaning(
        "Corral or the node could not run it",
        "corral events shows more; it starts again",
        is_infra=True,
    ),
    FailureKind.RATE_LIMIT: Meaning(
        "a service refused further requests",
        "wait, send a token, use a cache or fewer parallel requests; the network works",
    ),
    FailureKind.BINARY: Meaning(
        "a compiled part was built for another system or library version",
        "rebuild or reinstall it for the node's libc, Python and PyTorch, or use another image",
    ),
    FailureKind.RENDEZVOUS: Meaning(
        "fewer ranks or nodes joined than the job expects",
        "compare --nnodes and the world size with nodes:, and check that MASTER_ADDR and "
        "MASTER_PORT can be reached from every node",
    ),
    FailureKind.LOCKED_MEMORY: Meaning(
        "memory for RDMA cannot be registered",
        "raise the node's limit on locked memory (ulimit -l unlimited) and check its RDMA driver",
        is_infra=True,
    ),
    FailureKind.VARIABLE: Meaning(
        "a variable is not set",
        "set it under env:, or give it a default: ${NAME:-value}",
    ),
    FailureKind.PACKAGE: Meaning(
        "no such version of a package exists for this Python and index",
        "change the name or the version that is asked for (pip index versions NAME lists those "
        "there are), or the Python of the image",
    ),
    FailureKind.LIBRARY: Meaning(
        "a shared library that a compiled part was built for cannot be loaded",
        "install the library in the image, or reinstall the compiled part for the CUDA and the "
        "system of the node; ldd FILE.so lists what is missing",
    ),
    FailureKind.INPUT: Meaning(
        "it waited for standard input",
        "give the program its input in run: (< FILE, < /dev/null, --yes), or type it: corral "
        "attach {job}",
    ),
    FailureKind.CHILD: Meaning(
        "a process that it had started failed before, and it went on waiting",
        "mend the error that its log shows; more time changes nothing",
    ),
    FailureKind.UNKNOWN: Meaning(
        "it ended without a word", "read its log: corral logs {job}"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Reason why an attempt failed.

    Args:
        culprit: the rank, GPU or node that is to blame; `node` is the node of the
            culprit.
        quote: the line of the rank's log that shows the failure, for those who may read
            the log; "" for none.
        place: file and line of the program's own code that raised the error; "" where
            it is not known.
        step: advice that is more specific than that of the failure class.
        alike: how many ranks show the same failure.
    """

    kind: FailureKind
    culprit: str = ""
    node: NodeId | None = None
    rank: int | None = None
    quote: str = ""
    place: str = ""
    step: NextStep | None = None
    alike: int = 1

    @property
    def meaning(self) -> Meaning:
        return FAILURES[self.kind]

    @property
    def next(self) -> str:
        return next_step(self.kind, self.step, self.place)


def next_step(kind: FailureKind, step: NextStep | None, place: str = "") -> str:
    """Return advice on what the user can do about a failure. {job} in the text stands
    for the job's id.

    Args:
        step: Specific advice; None uses that of the failure class.
        place: File and line of the program, if they are known and may be shown.
    """
    if step is not None:
        return NEXT_STEPS[step]
    if kind == FailureKind.PROGRAM and place:
        return f"look at {place}, and read the end of its log"
    return FAILURES[kind].next
