"""Words by which programs tell of what they failed: the specific before the general.

Numbers before words where there are any: errno and HTTP statuses are the same in every language and
library, and the text of a CUDA or HIP status is the same behind every prefix. Sources: PyTorch 2.4
to 2.13 (torch.cuda, c10d, gloo), NCCL 2.18 to 2.27, CUDA Runtime API ("Error codes"), HIP ("Error
codes"), glibc strerror, Python, XLA, vLLM, Hugging Face hub; read in their sources or seen.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from corral.domain.failure import FailureKind as F
from corral.domain.next_steps import NextStep as S


@dataclass(frozen=True, slots=True)
class Pattern:
    """Words of a class.

    Args:
        of_peers: the rank has lost others, which may be another rank's doing.
        step: advice that is more specific than that of the class.
    """

    kind: F
    words: "re.Pattern[str]"
    of_peers: bool = False
    step: S | None = None


LINE_CHARACTERS: Final = 300  # of a line: the time that a pattern takes may grow with its square
MACHINE: Final = frozenset(  # what is wrong with machines, whatever the program says beside it
    {F.GPU_MEMORY, F.GPU_FAULT, F.GPU_MISSING, F.SHARED_MEMORY, F.DISK_FULL, F.STORAGE}
    | {F.HOST_MEMORY, F.LOCKED_MEMORY, F.FABRIC}
)


def _of(kind: F, *words: str, of_peers: bool = False, step: S | None = None) -> Pattern:
    return Pattern(kind, re.compile("|".join(words), re.IGNORECASE), of_peers, step)


def _errno(*numbers: int) -> str:
    """As Python, Rust, Go's syscall and C++'s system_error write it."""
    any_of = "|".join(str(number) for number in numbers)
    return rf"(?:\[Errno |os error |\berrno[ :=]+|\bOs {{ code: )(?:{any_of})\b"


def _http(*statuses: int) -> str:
    """As requests, httpx, aiohttp, curl, boto and gRPC gateways write it."""
    any_of = "|".join(str(status) for status in statuses)
    return (
        rf"\b(?:{any_of}) (?:Client|Server) Error\b|\(\W?(?:{any_of})\W?\) when calling|"
        rf"\bHTTP(?:/[\d.]+| Error| status(?: code)?|Error)?[ :=]+\W?(?:{any_of})\b|"
        rf"\bstatus(?:[ _]?code)?[ :=]+\W?(?:{any_of})\b|returned error: (?:{any_of})\b"
    )


# Told by a job of one rank that is no launcher: whom it lost was no rank of its own.
CUT_OFF: Final = re.compile(
    r"^(?!.*(gloo|NCCL)).*\bConnection\w* (broken|closed|reset|aborted)|ConnectionReset"
    r"|ECONNRESET|socket hang up"
)
PATTERNS: Final = (
    # -- what the general words below would take for another class --------------------------------
    _of(
        F.RATE_LIMIT,
        _http(429),
        r"Too ?Many ?Requests|\bSlow ?Down\b|\brate[- _]?limit\w* (exceeded|reached|error|for|hit)",
        r"RateLimit\w*(Error|Exceeded)|(Throttling|RequestLimitExceeded|TooManyRequests)\w*\b",
        r"Error code: 429|reduce your request rate|exceeded your (current )?quota|rate limited",
        r"(pull|API|request|download) rate limit|quota exceeded for (quota )?metric",
    ),
    _of(
        F.LOCKED_MEMORY,
        r"ibv_(reg|create|alloc)\w* .{0,99}(Cannot allocate memory|failed.{0,60}errno:? 12)",
        r"ibv_(reg_mr|create_cq|create_qp|alloc_pd)\w*.{0,80}(Cannot allocate|\(12\))",
        r"RLIMIT_MEMLOCK|max locked memory|\bmemlock\b|(register|pin)\w* .{0,40}locked memory",
        r"amount of memory.{0,40}(may be|is) (registered|locked)|OpenFabrics.{0,80}regist",
    ),
    _of(
        F.BINARY,
        r"\b(GLIBC|GLIBCXX|CXXABI|GCC)\w*_[\d.]+['`\"’]? not found|undefined symbol: ",
        r"version [`'][^']{1,60}' not found \(required by",
        r"binary incompatibility|size changed, may indicate|compiled using NumPy \d",
        r"_?multiarray(_umath)? failed to import|(compiled|built) against (ABI|API) version",
        r"compiled with different CUDA|operator torchvision::nms does not exist",
        r"wrong ELF class|invalid ELF header|Exec format error|cannot execute binary file",
        r"UnsupportedClassVersionError|compiled against a different Node\.js version",
        r"incompatible architecture|(wheel|module).{0,60}not (supported|compiled) (on|for) this",
        r"symbol lookup error|not a supported wheel on this platform|bad magic number in '",
    ),
    _of(
        F.PROGRAM,
        r"maximum recursion depth exceeded|StackOverflowError|Maximum call stack size exceeded",
        r"stack level too deep|infinite recursion|StackOverflowException|evaluation nested too",
        step=S.RECURSION,
    ),
    _of(
        F.PROGRAM,
        r"EOFError: EOF when reading a line|Inappropriate ioctl for device|not a (tty|terminal)\b",
        r"input device is not a TTY",
        step=S.STANDARD_INPUT,
    ),
    _of(F.PROGRAM, r"out of resources?: shared memory|out of resource: (threads|registers)"),
    _of(
        F.VARIABLE,
        r": unbound variable\b|: parameter (not set|null or not set)",
        r"environment variable \w{1,80}.{0,20} (is )?(expected, but )?(not|must be) (set|defined)",
        r"(env|environment) var\w* \W?(?-i:[A-Z_]{2,60})\W? (is )?(missing|unset|undefined)",
        r"^\S{1,200}: (line )?\d{1,9}: (?-i:[A-Z][A-Z0-9_]{1,60}): (?!command not found|not found)",
        r"environment variable not found: |undefined environment variable",
        r"(Missing|required) env\w* var\w*",
    ),
    # -- GPUs ------------------------------------------------------------------------------------
    _of(
        F.GPU_FAULT,
        r"uncorrectable (ECC|NVLink) error",
        r"(ECC|NvLink|NVLINK)_?(Uncorrectable|NotCorrectable)",
        r"ERROR_(ECC|NVLINK)_UNCORRECTABLE",
        r"GPU is lost|NVMLError_GpuIsLost|fallen off the bus",
        r"Unable to determine the device handle for GPU",
        r"(CUDA|HIP) error: (unknown error|hardware|device (unavailable|not ready))",
        r"Cuda failure (999|214|219|220|802)\b",
        r"cudaErrorDevicesUnavailable",
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        r"ERROR_(SYSTEM_NOT_READY|HARDWARE_STACK_ERROR|CONTAINED)|cudaErrorSystemNotReady",
        r"system not yet initialized",
        r"system has unsupported display driver",
        r"Driver/library version mismatch|driver mismatch",
        r"peer GPU memory over nvlink or a hardware error|MPS (client|server|control daemon)",
        r"HW Exception by GPU .*(Hang|ECC)|HSA_STATUS_ERROR_(EXCEPTION|FATAL)",
        r"\bXid\b.*: (48|63|64|74|79|94|95|119|120|1[34]\d)\b",
    ),
    _of(
        F.GPU_MEMORY,
        r"No available memory for the cache blocks|less than desired GPU memory utilization",
        r"Not enough memory\. Please try to increase --mem-fraction",
        r"tokens that can be stored in KV cache|KV cache (is needed|memory)|available KV cache",
        step=S.KV_CACHE,
    ),
    _of(
        F.GPU_MEMORY,
        r"(CUDA|HIP|XPU|GPU|device)[\w .:]*\bout of memory",
        r"(torch|cuda|cupy|rmm)[\w.]*OutOfMemoryError",
        r"OutOfMemoryError: (CUDA|HIP|XPU)",
        r"(CUDA_ERROR|hipError|cudaError)\w*_?(Out_?Of_?Memory|MemoryAllocation)",
        r"(CUBLAS|CUDNN|CUFFT|HIPBLAS|MIOPEN)\w*_ALLOC_FAILED",
        r"Out of GPU memory|std::bad_alloc: .*(CUDA|out_of_memory: RMM)",
        r"RESOURCE_EXHAUSTED.*(memory|alloc)|ResourceExhaustedError",
        r"OOM when allocating tensor|CUDA_OUT_OF_MEMORY",
    ),
    _of(
        F.GPU_MISSING,
        r"no CUDA(-capable)? (GPUs are available|device is detected)",
        r"No HIP GPUs are available|no (CUDA|ROCm)-capable device",
        r"Found no NVIDIA driver|NVIDIA driver on your system is too old",
        r"CUDA driver (version is insufficient|initialization failed)",
        r"PTX (was|compiled with) .*unsupported toolchain",
        r"Torch not compiled with CUDA enabled",
        r"No GPU (found|available|detected)|no GPUs? (was|were) found",
        r"torch\.cuda\.is_available\(\) is False",
        r"(requires|needs) (a|an|at least one) (CUDA|NVIDIA|GPU)",
        r"No supported gpu backend|You requested gpus?: |machine only has: |no visible GPU",
        r"number of (required )?GPUs.{0,40}(exceeds|greater|more) .{0,40}available",
        r"no kernel image is available|device kernel image is invalid|invalid device function",
        r"invalid device ordinal",
        r"libcuda\.so.*cannot open",
        r"ERROR_NO_(DEVICE|BINARY_FOR_GPU)|hipErrorNoBinaryForGpu",
        r"couldn't communicate with the NVIDIA driver|forward compatibility was attempted",
        r"could not select device driver .*gpu|Could not find any nv(idia)? files on this host",
    ),
    _of(
        F.GPU_PROGRAM,
        r"an illegal (memory access|instruction|address) was encountered|misaligned address",
        r"unspecified launch failure|the launch timed out and was terminated",
        r"device-side assert triggered",
        r"(CUDA|HIP) error: (an illegal|device-side assert|misaligned|invalid (config|arg))",
        r"(CUDA|HIP) error: operation not permitted",
        r"(cudaError|CUDA_ERROR_|hipError)_?(Illegal|Launch_?(Failure|Failed|Timeout)|Assert)",
        r"(cudaError|CUDA_ERROR_|hipError)_?(Misaligned|Invalid_?(Value|Configuration))",
        r"ncclInvalid(Usage|Argument)|Duplicate GPU detected",
        r"Memory access fault by GPU|too many resources requested for launch",
        r"invalid program counter|not supported on global/shared address space",
        r"HSA_STATUS_ERROR_(MEMORY|INVALID|ILLEGAL)",
        r"CUDNN_STATUS_(EXECUTION_FAILED|BAD_PARAM|NOT_SUPPORTED)",
        r"CUBLAS_STATUS_(EXECUTION_FAILED|INVALID_VALUE|NOT_INITIALIZED)",
    ),
    # -- memory, disks and limits of the machine -------------------------------------------------
    _of(
        F.SHARED_MEMORY,
        r"insufficient shared memory|failed to \w+ /dev/shm",
        r"unable to (open|allocate|write).*shared memory",
        r"(/dev/shm|</?torch_\d+_\d+|shared memory segment).*No space left",
        r"No space left.*/(dev/shm|torch_\d+_\d+|psm_\w+)|unable to mmap .*</?torch_\d+",
        r"DataLoader worker .* Bus error",
    ),
    _of(
        F.DISK_FULL,
        _errno(28, 122),
        r"No space left on device|Disk quota exceeded|\b(ENOSPC|EDQUOT)\b",
        r"not enough space on|disk (is )?full|database or disk is full|curl: \(23\)",
        r"inline_container.*unexpected pos|PytorchStreamWriter failed writing",
        r"kein Speicherplatz mehr|Aucun espace disponible|No queda espacio|设备上没有空间",
    ),
    _of(
        F.STORAGE,
        _errno(5, 6, 19, 30, 37, 67, 74, 107, 108, 116, 117, 121, 123),
        r"Stale (NFS )?file handle|Input/output error|(Remote|disk) I/O error|No such device$",
        r"Transport endpoint is not connected|transport endpoint shutdown",
        r"Read-only file system|Structure needs cleaning|No locks available",
        r"\b(EIO|ESTALE|EROFS|EUCLEAN|ENOTCONN|ESHUTDOWN|EREMOTEIO)\b",
    ),
    _of(
        F.HOST_MEMORY,
        r"java\.lang\.OutOfMemoryError|GC overhead limit exceeded|Could not reserve enough space",
        step=S.JAVA_HEAP,
    ),
    _of(F.HOST_MEMORY, r"JavaScript heap out of memory|Reached heap limit", step=S.NODE_HEAP),
    _of(
        F.HOST_MEMORY,
        _errno(12),
        r"\bMemoryError\b|_ArrayMemoryError",
        r"Cannot allocate memory|\bENOMEM\b",
        r"std::bad_alloc",
        r"^(ERROR: |LoadError: )*OutOfMemoryError\(",
        r"memory allocation of \d+ bytes failed|runtime: out of memory|heap out of memory",
        r"out of memory allocating heap|failed to map segment from shared object",
        r"DefaultCPUAllocator: (can't|not enough)",
        r"Unable to allocate .* (for an array|bytes)|cannot allocate vector of size",
        r"Out of memory: Killed process|oom[-_]kill|killed due to .*running low on memory",
    ),
    _of(
        F.LIMITS,
        _errno(7, 11, 23, 24, 27),
        r"Too many open files|received 0 items of ancdata",
        r"Resource temporarily unavailable",
        r"can't start new thread|fork: retry|pthread_create failed",
        r"File size limit exceeded|CPU time limit exceeded|File too large|Argument list too long",
        r"\b(EMFILE|ENFILE|EAGAIN)\b",
    ),
    # -- the network -----------------------------------------------------------------------------
    _of(
        F.PORT,
        _errno(98),
        r"Address already in use|\bEADDRINUSE\b",
        r"port \d* ?(is )?(already )?(in use|allocated|taken|occupied)",
    ),
    _of(
        F.ACCESS,
        _http(401, 403, 407),
        _errno(126, 127, 128),  # keys of Kerberos and AFS: none, expired, revoked
        r"\b40[13] (Unauthorized|Forbidden)|^(Unauthorized|Forbidden)\b",
        r"GatedRepoError|access a gated repo",
        r"(Invalid|Expired|Bad|Missing|No) (user |access )?(token|credentials|API[ _]key)",
        r"api_key not configured|API key (not|is) |not logged in",
        r"\b(AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken)\b",
        r"NoCredentialsError|UnauthorizedError|PERMISSION_DENIED:|UNAUTHENTICATED:",
        r"AuthenticationFailed|AuthenticationError|PermissionDeniedError|Invalid user token",
        r"could not read (Username|Password)|pull access denied|Required key not available",
        r"Authentication (failed|required)|password authentication failed",
        r"Permission denied \((publickey|password)|Host key verification failed",
    ),
    _of(
        F.NETWORK,
        r"couldn't connect to 'https?://huggingface|not in the cached files|OfflineModeIsEnabled",
        r"LocalEntryNotFoundError|(cannot|could not|couldn't) (reach|connect to) .{0,40}\bhub\b",
        step=S.HUB,
    ),
    _of(
        F.NETWORK,
        r"name or service is not known|cannot be retrieved \(gai error",
        r"no socket interface found",
    ),
    _of(
        F.FABRIC,
        r"Got completion .*(status=(5|9|10|11|12|13)\b|IBV_WC_\w+_ERR)",
        r"NET/IB.*(async event|port error|device fatal|Link down)",
        r"(transport )?retry (counter )?exceeded|local catastrophic error",
        r"UCX +(ERROR|DIAG).*(Endpoint timeout|Input/output|unreachable)",
        r"(socketStartConnect|socketProgress|ncclSocket|NET/Socket|Net :).*(No route|unreachable)",
        r"gloo.*(No route to host|Network is unreachable)",
        of_peers=True,
    ),
    _of(
        F.RENDEZVOUS,
        r"RendezvousTimeout|rendezvous.{0,80}(timeout|timed out)",
        r"(timeout|timed out).{0,80}rendezvous",
        r"\d{1,9}/\d{1,9} clients joined|waiting for clients|Timed out initializing process group",
        r"connectFullMesh failed|gloo.{0,120}(connect timeout|timed out connecting)",
        r"wait_for_workers|(waiting|timed out) .{0,60}\b(nodes?|workers|peers) to (join|connect)",
        of_peers=True,
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
        r"(timeout|timed out).*task names|heartbeat timeout",
        r"DEADLINE_EXCEEDED|DeadlineExceededError",
        r"Socket Timeout",
        r"store.*(wait|get).*time(d )?out",
        of_peers=True,
    ),
    _of(
        F.PEER,
        r"Connection (closed|reset) by (remote )?peer",
        r"Application timeout caused pair closure",
        r"NCCL error",
        r"ncclRemoteError|ncclSystemError|ncclInternalError|ncclUnhandledCudaError",
        r"NCCL communicator (was|has been) aborted",
        r"Broken pipe|BrokenPipeError|ConnectionResetError|ECONNRESET|socket hang up",
        r"TCPStore.*(recvValue|sendBytes|failed|closed)|recvValue failed",
        r"gloo.*(connect|recv|send|pair|transport)",
        r"Process group .* (aborted|destroyed)|ConnectionAbortedError",
        r"Rendezvous(Closed|Connection|GracefulExit|State)|SignalException",
        r"UNAVAILABLE: |UnavailableError|Collective ops is aborted|coordination service",
        r"distributed service detected fatal errors",
        r"remote (process|task) (has )?(exited|failed)|another task died",
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
        _errno(100, 101, 110, 111, 113),
        _http(500, 502, 503, 504),
        r"Temporary failure in name resolution|NameResolutionError|no such host",
        r"Name or service not known|No address associated with hostname",
        r"Could not resolve host|unable to resolve host|Temporary failure resolving",
        r"Network is unreachable|No route to host|Cannot assign requested address",
        r"Service (Temporarily )?Unavailable|Bad Gateway|Gateway Time-?out|Internal Server Error",
        r"Connection refused|Connection timed out|i/o timeout",
        r"Max retries exceeded",
        r"(ConnectTimeout|ReadTimeout|ConnectionError|ConnectError|URLError)",
        r"(EndpointConnectionError|SSLError)",
        r"\b(ENETUNREACH|EHOSTUNREACH|ECONNREFUSED|ETIMEDOUT|ENOTFOUND|EAI_AGAIN)\b",
        r"curl: \((5|6|7|28|35|52|56)\)|\bServiceUnavailable\b",
        r"RemoteDisconnected|Remote end closed|Server disconnected|IncompleteRead",
        r"socket\.timeout|TimeoutError: (timed out|The read operation)|(Host|Network) is down",
        r"CERTIFICATE_VERIFY_FAILED|certificate (has expired|verify failed|signed by unknown)",
    ),
    # -- what is loaded and computed -------------------------------------------------------------
    _of(
        F.CHECKPOINT,
        r"Error\(s\) in loading state_dict|size mismatch for |copying a param with shape",
        r"(Missing|Unexpected) key\(s\) in state_dict",
        r"ScopeParamShapeError|shape.{0,60}(checkpoint|restored).{0,60}(not|mis)match",
        step=S.STATE_DICT,
    ),
    _of(
        F.CHECKPOINT,
        r"PytorchStreamReader failed|failed finding central directory",
        r"SafetensorError: Error while deserializing",
        r"(checkpoint|state[_ ]dict|manifest).*(corrupt|invalid|not match|mismatch)",
        r"(checkpoint|state[_ ]dict|manifest).*(damaged|truncated)",
        r"invalid load key",
        r"CheckpointException|Weights only load failed",
        r"(no|not a|find a|any) valid checkpoint|Invalid magic number; corrupt file",
        r"(failed|unable|cannot|could not) (to )?(load|restore|read) (\w+ ){0,2}checkpoint",
    ),
    _of(
        F.NUMERIC,
        r"\b(loss|grad\w*|output\w*|logits|weights?) \w+( now)? (nan|inf)",
        r"(nan|inf)\b.*\b(loss|gradient|encountered|detected)",
        r"FloatingPointError|non-?finite|invalid values: *$|tensor\(\[*nan",
        r"returned nan values",
        r"probability tensor contains either|(found|encountered|contains?) (a )?(NaN|inf)s?\b",
        r"cannot decrease scale|minimum loss scale|loss (is|has) (exploded|diverged)",
    ),
    _of(
        F.DATA,
        r"JSONDecodeError",
        r"UnicodeDecodeError",
        r"UnpicklingError",
        r"zlib\.error|LZMAError|ZstdError|incorrect data check",
        r"Ran out of input|DataLossError|DATA_LOSS|tarfile\.ReadError|truncated file",
        r"Expected to be able to read \d+ bytes|(invalid|incorrect) (header|footer|signature)\b",
        r"(?<!syntax error: )unexpected end of (file|data|archive|input|stream)",
        r"(file|image|data|record|shard|archive)\w* (\w+ )?(is|was|are) "
        r"(truncated|corrupt|damaged)",
        r"BadZipFile",
        r"Not a gzipped file",
        r"EOFError: ",
        r"(pyarrow|parquet|arrow).*(Invalid|Error)",
        r"(cannot identify|truncated) image",
        r"(corrupt|truncated|damaged|malformed)\w* (file|data|record|shard|sample|archive)",
        r"ParserError|Error tokenizing data|magic (bytes|number) (not|mismatch)|bad magic",
        r"invalid compressed data|not in gzip format|checksum (mismatch|error|failed)",
        r"CRC check failed|disk image is malformed|file is not a database|unexpected EOF in arch",
        r"premature (end|EOF)|checksums? did NOT match|^parse error: .*line \d+, column \d",
        r"could only read \d|not fully written|expected \d+ bytes,? (but )?(got|read|found)",
        r"requires a buffer of|buffer is smaller than requested|cannot mmap an empty file",
    ),
    # -- the program itself ----------------------------------------------------------------------
    _of(
        F.MODULE,
        r"module\(s\) are unknown|Unable to locate a modulefile|modulefile.{0,60}not found",
        step=S.MODULE_FILES,
    ),
    _of(
        F.MODULE,
        r"ModuleNotFoundError|No module named|ImportError|cannot import name",
        r"error while loading shared libraries|cannot open shared object file",
        r"No matching distribution found|satisfies the requirement|^.{0,80}fatal error: \S+\.h",
        r"Cannot find (module|package) '|MODULE_NOT_FOUND|there is no package called",
        r"Package \S+ not found in current path|Can't locate \S+\.pm in @INC",
        r"\((pip3?|conda) install |(run|using|with|try):? `?'?(pip3?|conda) install ",
        r"DistributionNotFound|PackageNotFoundError|ClassNotFoundException|NoClassDefFoundError",
    ),
    _of(
        F.SYNTAX,
        r"SyntaxError|IndentationError|TabError|syntax error|ParseError:",
        r"unexpected EOF while|Unterminated quoted string|bad substitution",
    ),
    _of(
        F.COMMAND,
        r"command not found|(sh|env): (line )?\d*:? ?\S+: not found$|^\S+: \d+: .*: not found$",
        r"^\S*sh: (line )?(\d+: )?.*: Permission denied$",
        r"cannot execute|bad interpreter",
        r"No such file or directory: '?(python|torchrun|bash|sh|nvcc|ninja|git|gcc|g\+\+|make)\b",
        r"No such file or directory: '(nvidia-smi|ffmpeg|mpirun|srun|deepspeed|accelerate)'",
        r"^(/usr/bin/)?env: .*No such file",
        r"executable file not found in \$PATH|: Is a directory$",
        r"Kommando nicht gefunden|commande introuvable|orden no encontrada|未找到命令",
    ),
    _of(
        F.USAGE,
        r"(unrecognized|unknown|illegal|no such|unexpected|unused) (option|flag|argument)",
        r"invalid (option|flag)|invalid argument:? ['\"-]|Unknown command line flag",
        r"flag provided but not defined|Could not consume arg|not used by the HfArgumentParser",
        r"Invalid value for '|unexpected extra argument",
        r"(unrecognized|unexpected) arguments|the following arguments are required",
        r"error: argument |invalid (choice|int value|float value)",
        r"missing (option|argument|required)|requires an argument|is not in struct",
        r"^usage: ",
    ),
    _of(
        F.PERMISSION,
        _errno(1, 13),
        r"PermissionError|Permission denied|Operation not permitted|\b(EACCES|EPERM)\b",
        r"Keine Berechtigung|Permission non accordée|Permiso denegado|权限不够",
    ),
    _of(
        F.FILES,
        _errno(2, 20, 21),
        _http(404, 410),
        r"FileNotFoundError|NotADirectoryError|IsADirectoryError|\bENOENT\b",
        r"No such file or directory|can't open file|does not exist|no such file",
        r"NoSuchKey|NoSuchBucket|RepositoryNotFoundError|\b404 Not Found",
        r"Incorrect path_or_model_id|is not a local folder and is not a valid model",
        r"FileNotFoundException|Unable to find '|BlobNotFound|ContainerNotFound|NOT_FOUND: ",
        r"Too many levels of symbolic links|File name too long|Not a directory|manifest unknown",
        r"Datei oder Verzeichnis nicht gefunden|Aucun fichier ou dossier|没有那个文件或目录",
    ),
    _of(F.INTERRUPTED, r"KeyboardInterrupt|InterruptException"),
    _of(
        F.CRASH,
        r"Segmentation fault|Fatal Python error|core dumped|SIGSEGV|Illegal instruction",
        r"terminate called (after|without)|double free|free\(\): invalid",
        r"malloc\(\): |corrupted size vs|stack smashing|Aborted$|Bus error",
        r"ERROR: \w{1,40}Sanitizer: |Floating point exception|stack overflow",
    ),
    _of(
        F.KILLED,
        r"^Killed$|: +\d{1,9} (Killed|Terminated)\b|killed by signal|terminated abruptly|unexpectedly terminated",
        r"received signal (SIGKILL|SIGTERM|9|15)\b",
    ),
)


@lru_cache(maxsize=4096)  # the ranks of a gang print the same
def pattern_of(line: str, *, machine_only: bool = False) -> Pattern | None:
    """The first that the line has the words of, in what is looked at of a line."""
    line = line[:LINE_CHARACTERS]
    wanted = (one for one in PATTERNS if not machine_only or one.kind in MACHINE)
    return next((one for one in wanted if one.words.search(line)), None)
