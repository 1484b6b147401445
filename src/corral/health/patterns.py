"""Words by which programs tell of what they failed: the specific before the general.

Sources: messages of PyTorch 2.11 to 2.13 (torch.cuda, c10d, gloo, NCCL), CUDA Runtime API ("Error
codes"), glibc strerror, Python's exceptions, Hugging Face hub; read in their sources or seen.
"""

import re
from dataclasses import dataclass
from typing import Final

from corral.domain.failure import FailureKind as F


@dataclass(frozen=True, slots=True)
class Pattern:
    """`of_peers`: who prints this has lost others, which may be another rank's doing."""

    kind: F
    words: "re.Pattern[str]"
    of_peers: bool = False


MACHINE: Final = frozenset(  # what is wrong with the machine, whatever the program says beside it
    {F.GPU_MEMORY, F.GPU_FAULT, F.GPU_MISSING, F.SHARED_MEMORY, F.DISK_FULL, F.STORAGE}
    | {F.HOST_MEMORY}
)


def _of(kind: F, *words: str, of_peers: bool = False) -> Pattern:
    return Pattern(kind, re.compile("|".join(words), re.IGNORECASE), of_peers)


PATTERNS: Final = (
    # -- GPUs ------------------------------------------------------------------------------------
    _of(
        F.GPU_MEMORY,
        r"(CUDA|HIP|XPU|GPU)[\w .]* out of memory",
        r"OutOfMemoryError",
        r"CUDA_ERROR_OUT_OF_MEMORY",
        r"CUBLAS_STATUS_ALLOC_FAILED",
        r"hipErrorOutOfMemory",
        r"RESOURCE_EXHAUSTED.*(memory|alloc)",
    ),
    _of(
        F.GPU_FAULT,
        r"uncorrectable (ECC|NVLink) error",
        r"cudaErrorECCUncorrectable",
        r"CUDA_ERROR_ECC_UNCORRECTABLE",
        r"GPU (is lost|has fallen off the bus)",
        r"fallen off the bus",
        r"NVML: GPU is lost",
        r"CUDA error: (unknown error|hardware|device (unavailable|not ready|kernel image))",
        r"cudaErrorDevicesUnavailable",
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        r"CUDA_ERROR_(SYSTEM_NOT_READY|NVLINK_UNCORRECTABLE|HARDWARE_STACK_ERROR|CONTAINED)",
        r"system not yet initialized",
        r"\bXid\b.*: (48|63|64|74|79|94|95|119|120|1[34]\d)\b",
        r"NCCL.*(unhandled cuda error).*(ECC|hardware)",
    ),
    _of(
        F.GPU_PROGRAM,
        r"CUDA error: (an illegal|device-side assert|misaligned|invalid (device fun|config|arg))",
        r"CUDA error: (unspecified launch|the launch timed out|operation not permitted)",
        r"an illegal memory access was encountered",
        r"device-side assert triggered",
        r"CUDNN_STATUS_(EXECUTION_FAILED|BAD_PARAM|NOT_SUPPORTED)",
        r"CUBLAS_STATUS_(EXECUTION_FAILED|INVALID_VALUE|NOT_INITIALIZED)",
        r"no kernel image is available",
    ),
    _of(
        F.GPU_MISSING,
        r"no CUDA(-capable)? (GPUs are available|device is detected)",
        r"Found no NVIDIA driver",
        r"CUDA driver (version is insufficient|initialization failed)",
        r"Driver/library version mismatch",
        r"Torch not compiled with CUDA enabled",
        r"invalid device ordinal",
        r"libcuda\.so.*cannot open",
    ),
    # -- memory, disks and limits of the machine -------------------------------------------------
    _of(
        F.SHARED_MEMORY,
        r"insufficient shared memory",
        r"unable to (open|allocate|write).*shared memory",
        r"/dev/shm.*No space left",
        r"No space left.*/(dev/shm|torch_\d+_\d+)",
        r"DataLoader worker .* Bus error",
    ),
    _of(F.DISK_FULL, r"No space left on device", r"Disk quota exceeded", r"\b(ENOSPC|EDQUOT)\b"),
    _of(
        F.STORAGE,
        r"Stale (NFS )?file handle",
        r"Input/output error",
        r"Transport endpoint is not connected",
        r"Remote I/O error",
        r"Read-only file system",
        r"Structure needs cleaning",
        r"\b(EIO|ESTALE|EROFS|EUCLEAN|ENOTCONN)\b",
    ),
    _of(
        F.HOST_MEMORY,
        r"^(\[rank\d+\]:\s*)?MemoryError",
        r"Cannot allocate memory",
        r"std::bad_alloc",
        r"\bENOMEM\b",
        r"DefaultCPUAllocator: (can't|not enough)",
        r"Unable to allocate .* (for an array|bytes)",
        r"Out of memory: Killed process",
        r"oom[-_]kill",
        r"DataLoader worker \(pid.*\) is killed by signal: Killed",
    ),
    _of(
        F.LIMITS,
        r"Too many open files",
        r"Resource temporarily unavailable",
        r"can't start new thread",
        r"fork: retry",
        r"File size limit exceeded",
        r"CPU time limit exceeded",
        r"maximum recursion depth exceeded",
        r"\b(EMFILE|ENFILE|EAGAIN)\b",
    ),
    # -- the network -----------------------------------------------------------------------------
    _of(F.PORT, r"Address already in use", r"\bEADDRINUSE\b"),
    _of(
        F.ACCESS,
        r"40[13] (Client Error|Unauthorized|Forbidden)",
        r"GatedRepoError",
        r"(Invalid|Expired|Bad) (user )?(token|credentials|API key)",
        r"AccessDenied\b",
        r"NoCredentialsError",
        r"Authentication (failed|required)",
        r"Permission denied \(publickey",
    ),
    _of(
        F.HANG,
        r"Watchdog caught collective operation timeout",
        r"Timed out waiting \d+ ?ms for (recv|send)",
        r"Collective .* timed out",
        r"ran for \d+ milliseconds before timing out",
        r"NCCL.*(timeout|timed out)",
        r"monitoredBarrier",
        r"(wait|barrier|all_?reduce|broadcast|all_?gather).*(timeout|timed out)",
        r"(timeout|timed out).*(barrier|all_?reduce|broadcast|all_?gather)",
        r"(timeout|timed out).*(clients joined|rendezvous)",
        r"Socket Timeout",
        r"store.*(wait|get).*time(d )?out",
        of_peers=True,
    ),
    _of(
        F.PEER,
        r"Connection (closed|reset) by (remote )?peer",
        r"Application timeout caused pair closure",
        r"NCCL error",
        r"ncclRemoteError",
        r"ncclSystemError",
        r"ncclInternalError",
        r"Broken pipe",
        r"BrokenPipeError",
        r"ConnectionResetError",
        r"TCPStore.*(recvValue|sendBytes|failed|closed)",
        r"recvValue failed",
        r"gloo.*(connect|recv|send|pair|transport)",
        r"Process group .* (aborted|destroyed)",
        r"remote process exited",
        r"Rank \d+ (was|is) (lost|dead|gone)",
        r"DistBackendError",
        of_peers=True,
    ),
    _of(
        F.PEER,
        r"(DistNetworkError|DistStoreError|client socket has (failed|timed out)).*",
        r"(connect|connection) to .*MASTER_ADDR.* (failed|refused)",
        of_peers=True,
    ),
    _of(
        F.NETWORK,
        r"Temporary failure in name resolution",
        r"Name or service not known",
        r"No address associated with hostname",
        r"Could not resolve host",
        r"Network is unreachable",
        r"No route to host",
        r"Connection refused",
        r"Connection timed out",
        r"Max retries exceeded",
        r"(ConnectTimeout|ReadTimeout|ConnectionError|URLError|EndpointConnectionError|SSLError)",
        r"\b(ENETUNREACH|EHOSTUNREACH|ECONNREFUSED|ETIMEDOUT)\b",
        r"CERTIFICATE_VERIFY_FAILED",
    ),
    # -- what is loaded and computed -------------------------------------------------------------
    _of(
        F.CHECKPOINT,
        r"Error\(s\) in loading state_dict",
        r"size mismatch for ",
        r"(Missing|Unexpected) key\(s\) in state_dict",
        r"PytorchStreamReader failed",
        r"SafetensorError",
        r"(checkpoint|state[_ ]dict|manifest).*(corrupt|invalid|not match|mismatch)",
        r"(checkpoint|state[_ ]dict|manifest).*(damaged|truncated)",
        r"invalid load key",
        r"CheckpointException",
    ),
    _of(
        F.NUMERIC,
        r"\b(loss|grad\w*|output\w*|logits|weights?) \w+( now)? (nan|inf)",
        r"(nan|inf)\b.*\b(loss|gradient|encountered|detected)",
        r"FloatingPointError",
        r"returned nan values",
        r"probability tensor contains either",
    ),
    _of(
        F.DATA,
        r"JSONDecodeError",
        r"UnicodeDecodeError",
        r"UnpicklingError",
        r"Ran out of input",
        r"BadZipFile",
        r"Not a gzipped file",
        r"EOFError",
        r"(pyarrow|parquet|arrow).*(Invalid|Error)",
        r"(cannot identify|truncated) image",
        r"(corrupt|truncated|damaged|malformed)\w* (file|data|record|shard|sample|archive)",
        r"ParserError",
        r"CRC check failed",
    ),
    # -- the program itself ----------------------------------------------------------------------
    _of(F.MODULE, r"ModuleNotFoundError", r"No module named", r"ImportError", r"cannot import name",
        r"cannot open shared object file", r"undefined symbol", r"GLIBC\w*_[\d.]+' not found"),
    _of(F.SYNTAX, r"SyntaxError", r"IndentationError", r"TabError", r"syntax error",
        r"unexpected (EOF|end of file|token)"),
    _of(F.COMMAND, r"command not found", r": not found$", r"Exec format error",
        r"No such file or directory: '?(python|torchrun|bash|sh)\b", r"cannot execute",
        r"bad interpreter", r"Is a directory$"),
    _of(F.USAGE, r"unrecognized arguments", r"the following arguments are required",
        r"error: argument ", r"invalid (choice|option|int value|float value)", r"no such option",
        r"unknown (option|flag|argument)", r"^usage: "),
    _of(F.PERMISSION, r"PermissionError", r"Permission denied", r"Operation not permitted",
        r"\b(EACCES|EPERM)\b"),
    _of(F.FILES, r"FileNotFoundError", r"No such file or directory", r"NotADirectoryError",
        r"can't open file", r"does not exist", r"\bENOENT\b", r"IsADirectoryError",
        r"NoSuchKey", r"NoSuchBucket", r"RepositoryNotFoundError", r"404 (Client Error|Not Found)"),
    _of(F.INTERRUPTED, r"KeyboardInterrupt"),
    _of(F.CRASH, r"Segmentation fault", r"Fatal Python error", r"core dumped",
        r"terminate called (after|without)", r"double free", r"free\(\): invalid",
        r"malloc\(\): ", r"corrupted size vs", r"stack smashing", r"Aborted$", r"Bus error"),
    _of(F.KILLED, r"^Killed$", r"received signal (SIGKILL|SIGTERM|9|15)\b"),
)  # fmt: skip
