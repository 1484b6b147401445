"""Classes of failures, with their texts and advice."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.failure_advice import NEXT_STEPS, NextStep
from corral.domain.ids import NodeId


class FailureKind(StrEnum):
    """Class of the reasons why an attempt failed. FAILURES has the meaning of each
    class, and what helps."""

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
    STALL = "hang"
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
    CERTIFICATE = "untrusted-certificate"
    SERVICE_TIMEOUT = "service-timeout"
    SERVICE = "service-error"
    HELPER = "helper-lost"
    QUOTA = "quota-exceeded"
    LAYOUT = "layout-mismatch"
    PROXY = "proxy-failed"
    DNS = "dns-failed"
    GPU_COUNT = "too-few-gpus"
    INTERFACE = "no-such-interface"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Explanation of a failure class.

    `text` completes "it failed: ...". `next` is what the user can do; {job} in it
    stands for the job's id. `is_infra`: the infrastructure retry budget is charged,
    whatever the exit was.
    """

    text: str
    next: str
    is_infra: bool = False


FAILURES: Final[Mapping[FailureKind, Meaning]] = {
    FailureKind.PROGRAM: Meaning(
        "the program raised an error",
        "read the end of the log (corral logs {job}) and fix the program",
    ),
    FailureKind.MODULE: Meaning(
        "a module cannot be imported",
        "install the module in setup: or in the image; then submit again",
    ),
    FailureKind.SYNTAX: Meaning(
        "the program has a syntax error",
        "fix the line that the log names; then submit again",
    ),
    FailureKind.USAGE: Meaning(
        "the program does not accept its arguments",
        "compare the arguments in run: with the program's --help",
    ),
    FailureKind.COMMAND: Meaning(
        "the command cannot be run",
        "check the command's name and PATH in run:, and that the file is executable",
    ),
    FailureKind.FILES: Meaning(
        "a file is missing",
        "check its path; of the workdir only files that .gitignore does not exclude are copied",
    ),
    FailureKind.PERMISSION: Meaning(
        "permission to use a file was denied",
        "check owner and mode of the path that the log names",
    ),
    FailureKind.GPU_MEMORY: Meaning(
        "the GPU's memory is full",
        "use a smaller micro batch, recomputation or more GPUs: corral plan model shows what fits",
    ),
    FailureKind.HOST_MEMORY: Meaning(
        "the job's memory is full",
        "request more with resources: {memory: ...}, or use fewer data workers; check ulimit -v",
    ),
    FailureKind.SHARED_MEMORY: Meaning(
        "/dev/shm is full",
        "use fewer data workers or a larger /dev/shm (df -h /dev/shm shows its size)",
    ),
    FailureKind.DISK_FULL: Meaning(
        "a disk is full",
        "free space on the disk that the job writes to (df -h, quota), or keep fewer checkpoints",
    ),
    FailureKind.STORAGE: Meaning(
        "storage returned an error",
        "the job starts again on other nodes while it has retries; to check the mount: "
        "corral node show NODE; the same error on every node is a fault of the storage",
        is_infra=True,
    ),
    FailureKind.LIMITS: Meaning(
        "a limit of the operating system was reached",
        "open fewer files, or start fewer processes",
    ),
    FailureKind.GPU_PROGRAM: Meaning(
        "the program made an invalid call or memory access on the GPU",
        "run it with CUDA_LAUNCH_BLOCKING=1 to find the kernel; with several GPUs use "
        "compute-sanitizer",
    ),
    FailureKind.GPU_FAULT: Meaning(
        "a GPU or its driver is broken",
        "the job starts again on other nodes while it has retries; for the node's health: "
        "corral node show NODE; if it fails alike on every node, check the driver and the "
        "program: corral doctor gpu",
        is_infra=True,
    ),
    FailureKind.GPU_MISSING: Meaning(
        "the program cannot use any GPU",
        "check that PyTorch fits the driver (corral doctor gpu), and that resources: "
        "requests a gpu:",
    ),
    FailureKind.CRASH: Meaning(
        "the program crashed",
        "run it under gdb, or with PYTHONFAULTHANDLER=1 if it is Python; check compiled extensions",
    ),
    FailureKind.KILLED: Meaning(
        "a process, a person or the kernel killed the program",
        "look for timeout, kill or scancel in the job's scripts, and for who stopped "
        "the job: corral audit; if no user did, run dmesg on the node to see whether "
        "its memory was full",
    ),
    FailureKind.PEER: Meaning(
        "another rank was lost",
        "look at the rank that ended first: corral logs {job} --rank N",
    ),
    FailureKind.HANG: Meaning(
        "a rank did not reach a collective operation in time",
        "look at what the named rank did last; all ranks must call the same collectives",
    ),
    FailureKind.STALL: Meaning(
        "its ranks made no step for too long",
        "the job starts again while it has retries; the third hang in a row at one step "
        "counts as the program's own: look at the line where the named rank stood (corral "
        "why {job}); if no rank is named, write watch: {act: alert} and look at the job "
        "while it hangs: corral debug stacks {job}",
        is_infra=True,
    ),
    FailureKind.PORT: Meaning(
        "a port is already in use",
        "use MASTER_PORT, which Corral reserves for the job, or another port",
    ),
    FailureKind.NETWORK: Meaning(
        "an address cannot be reached",
        "check the address, and test the network of the nodes: corral doctor net",
    ),
    FailureKind.FABRIC: Meaning(
        "the network between the ranks failed",
        "the job starts again while it has retries; to test the links of the nodes: "
        "corral doctor net",
        is_infra=True,
    ),
    FailureKind.ACCESS: Meaning(
        "a service denied access",
        "check the token in secrets:, and that it may read what the program requests",
    ),
    FailureKind.DATA: Meaning(
        "the data cannot be read",
        "check the file that the program was reading: it may be truncated, damaged or "
        "in another format",
    ),
    FailureKind.CHECKPOINT: Meaning(
        "a checkpoint cannot be loaded",
        "load another checkpoint (corral checkpoints {job} lists those that verify): "
        "this one may be truncated or damaged",
    ),
    FailureKind.NUMERIC: Meaning(
        "a value is NaN or infinite",
        "lower the learning rate, clip gradients; check the last batch",
    ),
    FailureKind.INTERRUPTED: Meaning(
        "the program was interrupted",
        "submit the job again if this was not intended",
    ),
    FailureKind.SETUP: Meaning(
        "the commands in setup: failed",
        "fix setup: (the log shows its error); then submit again",
    ),
    FailureKind.NODE_LOST: Meaning(
        "the node was lost",
        "the job starts again on other nodes while it has retries, from its newest "
        "checkpoint or from the beginning",
        is_infra=True,
    ),
    FailureKind.NODE_REBOOTED: Meaning(
        "the node restarted",
        "the job starts again while it has retries, from its newest checkpoint or from "
        "the beginning",
        is_infra=True,
    ),
    FailureKind.CLUSTER: Meaning(
        "Corral or the node could not run the job",
        "the job starts again while it has retries; for details: corral events {job}",
        is_infra=True,
    ),
    FailureKind.RATE_LIMIT: Meaning(
        "a remote service refused requests because there were too many",
        "wait, log in with a token, use a cache or send fewer parallel requests; the network works",
    ),
    FailureKind.BINARY: Meaning(
        "a compiled package was built for another system or library version",
        "rebuild or reinstall the package for the node's libc, Python and PyTorch, or "
        "use another image",
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
        "an environment variable is not set",
        "set the variable under env:, or give it a default: ${NAME:-value}",
    ),
    FailureKind.PACKAGE: Meaning(
        "no such version of a package exists for this Python and index",
        "change the name or version of the package (pip index versions NAME lists all), "
        "or use an image with another Python",
    ),
    FailureKind.LIBRARY: Meaning(
        "a shared library that the program needs cannot be loaded",
        "install the library in the image, or reinstall the package for the node's CUDA "
        "and system; ldd FILE.so lists what is missing",
    ),
    FailureKind.INPUT: Meaning(
        "the program waited for standard input",
        "give the program its input in run: (< FILE, < /dev/null, --yes), or type it: "
        "corral attach {job} --stdin",
    ),
    FailureKind.CHILD: Meaning(
        "a child process failed, and the program went on waiting for it",
        "fix the error that the log shows; a longer time limit does not help",
    ),
    FailureKind.CERTIFICATE: Meaning(
        "the TLS certificate of a service is not trusted",
        "the address was reached: add the CA that signed its certificate to a CA bundle, "
        "and set SSL_CERT_FILE and REQUESTS_CA_BUNDLE to it under env: (Node.js: "
        "NODE_EXTRA_CA_CERTS; Java: a trust store); or ask the owner of the service",
    ),
    FailureKind.SERVICE_TIMEOUT: Meaning(
        "a service did not answer in time",
        "the address was reached, but the service did not answer in time: check that it "
        "runs and is not overloaded; then retry, or raise the timeout of the client",
    ),
    FailureKind.SERVICE: Meaning(
        "a service answered with an error of its own (HTTP 5xx)",
        "the address was reached: read the log of the service or ask its owner; retry "
        "the request with a delay",
    ),
    FailureKind.HELPER: Meaning(
        "a helper process of the program ended",
        "a helper process on the same node ended (a DataLoader worker, a pool or a "
        "manager): its own error is above in the log; without one it was killed: request "
        "more memory, use fewer workers, or set num_workers=0 to see the error",
    ),
    FailureKind.QUOTA: Meaning(
        "a storage quota is used up",
        "delete files that belong to the same user or project, or ask for a larger quota "
        "(quota -s shows its use); the disk itself may have free space",
    ),
    FailureKind.LAYOUT: Meaning(
        "the number of ranks does not fit the parallel layout",
        "make nodes: times the GPUs of a node a multiple of tensor x pipeline x context "
        "parallel size, or lower these sizes in the program's configuration",
    ),
    FailureKind.PROXY: Meaning(
        "the proxy could not be used",
        "the job starts again while it has retries; on the node run: curl -v -x $https_proxy "
        "URL; if the job sets http_proxy or https_proxy under env:, check them, and name "
        "hosts that need no proxy in no_proxy",
        is_infra=True,
    ),
    FailureKind.DNS: Meaning(
        "the DNS of the node did not resolve a host name",
        "the job starts again while it has retries; check the DNS of the node (getent hosts "
        "NAME, /etc/resolv.conf): its server did not answer, or the network is down",
        is_infra=True,
    ),
    FailureKind.GPU_COUNT: Meaning(
        "the program asks for more GPUs than the job has",
        "set the number of GPUs in the program's arguments to that of resources: {gpu: ...}, "
        "or request more; a device index starts at 0 on each node",
    ),
    FailureKind.INTERFACE: Meaning(
        "the network interface that the program was told to use does not exist",
        "set NCCL_SOCKET_IFNAME (Gloo: GLOO_SOCKET_IFNAME; UCX: UCX_NET_DEVICES) to an "
        "interface that every node has (ip -br address lists them), or leave it unset",
    ),
    FailureKind.UNKNOWN: Meaning(
        "the program ended without an error message",
        "read its log: corral logs {job}",
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
        return f"look at {place}, and read the end of the log"
    return FAILURES[kind].next
