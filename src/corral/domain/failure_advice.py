"""Advice on failures that is more specific than that of a failure class: by programming
language, signal or tool."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class NextStep(StrEnum):
    """Advice that is more specific than that of a failure class. Its sentence is in
    NEXT_STEPS."""

    ILLEGAL_INSTRUCTION = "illegal-instruction"
    BUS_ERROR = "bus-error"
    ARITHMETIC = "arithmetic-error"
    SEGMENTATION = "segmentation-fault"
    ABORTED = "aborted"
    TERMINATED = "terminated"
    TIMED_OUT = "timed-out"
    RECURSION = "recursion"
    STANDARD_INPUT = "standard-input"
    JAVA_HEAP = "java-heap"
    NODE_HEAP = "node-heap"
    KV_CACHE = "kv-cache"
    STATE_DICT = "state-dict"
    HUB = "model-hub"
    MODULE_FILES = "module-files"
    RUST = "rust-panic"
    GO = "go-panic"
    JAVA = "java-exception"
    JULIA = "julia-error"
    R = "r-error"
    NODE = "node-error"
    CPP = "cpp-exception"
    COMPILER = "compiler-error"
    SANITIZER = "sanitizer-report"
    MPI_ABORT = "mpi-abort"
    MPI_SLOTS = "mpi-slots"
    LINE_ENDS = "line-ends"
    BATCH_SHAPES = "batch-shapes"
    NATIVE_CODE = "native-code"
    OTHER_RANKS = "other-ranks"
    LAST_LINES = "last-lines"
    SILENT = "silent"
    EARLIER_COMMAND = "earlier-command"
    ENCODING = "encoding"
    LINKER = "linker"
    CPU_TIME = "cpu-time"
    FILE_SIZE = "file-size"
    CIRCULAR_IMPORT = "circular-import"
    OTHER_VERSION = "other-version"
    FIRST_LINE = "first-line"
    LFS = "git-lfs"
    CLOSED_PIPE = "closed-pipe"
    OTHER_PYTHON = "other-python"
    NAN_INPUT = "nan-input"
    INTERPRETER = "interpreter"
    REFUSED = "connection-refused"
    NAME = "name-resolution"
    CERTIFICATE_DATE = "certificate-date"
    CERTIFICATE_NAME = "certificate-name"
    CHECKSUM = "checksum"
    WATCHDOG = "watchdog"
    CUT_TRACEBACK = "cut-traceback"
    WORKER_LOG = "worker-log"
    WORKER_KILLED = "worker-killed"
    SSH = "ssh"


NEXT_STEPS: Final[Mapping[NextStep, str]] = {
    NextStep.ILLEGAL_INSTRUCTION: "the program was built for another CPU (SIGILL): build it on "
    "the node or without -march=native, or install another package",
    NextStep.BUS_ERROR: "a mapped file was truncated, or /dev/shm or a disk is full (SIGBUS): "
    "check the files that the program maps, and run: df -h /dev/shm",
    NextStep.ARITHMETIC: "an integer was divided by zero or overflowed (SIGFPE): run the program "
    "under gdb",
    NextStep.SEGMENTATION: "run the program under gdb, or with PYTHONFAULTHANDLER=1 if it is "
    "Python; deep recursion needs a larger stack: ulimit -s unlimited",
    NextStep.ABORTED: "the program aborted itself (SIGABRT): read the last lines of its log for "
    "the failed check; run it under gdb for the call stack",
    NextStep.TERMINATED: "a process or a person sent SIGTERM: look for timeout, kill or scancel "
    "in the job's scripts; memory is not the cause (the kernel sends SIGKILL then)",
    NextStep.TIMED_OUT: "the command timeout in the script ended the program (exit code 124, or "
    "137 by SIGKILL): raise its limit, or find out why the program takes longer",
    NextStep.RECURSION: "a function calls itself without end or too deep: end the recursion, use "
    "a loop, or allow more depth (sys.setrecursionlimit, java -Xss, node --stack-size, ulimit -s)",
    NextStep.STANDARD_INPUT: "ranks have no standard input: pass the answer as an argument or a "
    "file, or use the program's --yes",
    NextStep.JAVA_HEAP: "raise the JVM's heap (-Xmx), but keep it below the job's memory "
    "(resources: {memory: ...})",
    NextStep.NODE_HEAP: "raise the heap of Node.js (NODE_OPTIONS=--max-old-space-size=MB), but "
    "keep it below the job's memory (resources: {memory: ...})",
    NextStep.KV_CACHE: "lower max_model_len or raise gpu_memory_utilization; or use more GPUs",
    NextStep.STATE_DICT: "the checkpoint can be read, but the model in the code has other layers "
    "or sizes: compare it with the configuration that the checkpoint was saved with",
    NextStep.HUB: "download the model first, on a node that can reach the Hugging Face hub; or "
    "check the proxy, HF_HUB_OFFLINE and HF_HOME",
    NextStep.MODULE_FILES: "list the modules of the node: module avail, module spider NAME",
    NextStep.RUST: "look at the source line in the panic message; set RUST_BACKTRACE=1 to print "
    "the call stack",
    NextStep.GO: "look at the first goroutine below the message in the log",
    NextStep.JAVA: "look at the first line of the stack trace that names one of the program's own "
    "packages",
    NextStep.JULIA: "look at the first frame of the stack trace that names one of the program's "
    "own files",
    NextStep.R: "look at the call that the message names; set options(error = traceback) to see "
    "more",
    NextStep.NODE: "look at the file and line above the message in the log",
    NextStep.CPP: "catch the exception, or run the program under gdb with: catch throw",
    NextStep.COMPILER: "fix the line that the compiler names; then submit again",
    NextStep.SANITIZER: "the sanitizer names the kind of the error and its call stack: look at "
    "the first frame of the program's own code in its report",
    NextStep.MPI_ABORT: "look at what the rank that called MPI_Abort printed before it",
    NextStep.FIRST_LINE: "look at the file and line that the error message names",
    NextStep.MPI_SLOTS: "make -n of mpirun match the nodes and ranks of the job, or pass "
    "--oversubscribe to mpirun",
    NextStep.LINE_ENDS: "the script has Windows line ends (CRLF): convert it with dos2unix FILE, "
    "or sed -i 's/\\r$//' FILE",
    NextStep.BATCH_SHAPES: "the samples of a batch differ in shape: pad, crop or filter them in "
    "the dataset, or pass a collate_fn to the DataLoader",
    NextStep.NATIVE_CODE: "compiled code that this line calls crashed: check its arguments, its "
    "build and its version; run it under gdb for its own call stack",
    NextStep.OTHER_RANKS: "the named rank waited: see what the other ranks did last (corral logs "
    "{job} --rank N); all ranks must call the same collectives, equally often",
    NextStep.LAST_LINES: "the log shows no error: read its last lines (corral logs {job}); with "
    "set -e a shell script ends without a message if grep, test or diff fails: add set -x",
    NextStep.SILENT: "the program printed nothing: add set -x to a shell script, or run Python "
    "with python -X faulthandler -u; then submit again",
    NextStep.EARLIER_COMMAND: "fix the error in the first quoted line: it caused the second one; "
    "with set -e the script would have stopped there",
    NextStep.ENCODING: "the file has another encoding than the program expects: pass encoding=, "
    "convert the file with iconv, or check that it is a text file",
    NextStep.LINKER: "link the library that defines the symbol (-l, after the files that use it), "
    "or install it",
    NextStep.CPU_TIME: "the program reached its limit of CPU time (SIGXCPU): raise ulimit -t in "
    "the script",
    NextStep.CIRCULAR_IMPORT: "two files import each other, or a file has the same name as a "
    "module that it imports: rename it, or import inside a function",
    NextStep.OTHER_VERSION: "the installed version of the package does not have this name: pin a "
    "version that has it, or change the program",
    NextStep.LFS: 'look at the beginning of the file (head -c 200 FILE): if it is "version '
    'https://git-lfs...", it is only a pointer to the weights: run git lfs pull; otherwise it is '
    "damaged: load another file",
    NextStep.CLOSED_PIPE: "the program wrote into a pipe whose reader had exited (SIGPIPE), as "
    "in: yes | head; with set -o pipefail the script then fails: append || true, or read all "
    "output",
    NextStep.OTHER_PYTHON: "the program needs another Python version, mostly a newer Python: "
    "choose it in setup: (uv venv --python 3.12), or use another image",
    NextStep.NAN_INPUT: "the data has missing or infinite values: find them (df.isna().sum()), "
    "then drop or impute them (SimpleImputer) before fit",
    NextStep.INTERPRETER: "the interpreter in the script's first line does not exist, or the "
    "script has Windows line ends (head -1 FILE | cat -A shows ^M$): run sed -i 's/\\r$//' FILE",
    NextStep.FILE_SIZE: "the program reached its limit of file sizes (SIGXFSZ): raise ulimit -f "
    "in the script",
    NextStep.REFUSED: "the host was reached, but no process accepts connections on this port: "
    "check that the server runs, and that it listens on this address and port",
    NextStep.NAME: "the host name cannot be resolved: check how it is written, and the DNS of the "
    "node (getent hosts NAME); the network itself may work",
    NextStep.CERTIFICATE_DATE: "the address was reached, but its certificate is not valid at this "
    "time: compare the clock of the node (date, corral doctor) with the dates of the "
    "certificate; if the clock is right, ask the owner to renew the certificate",
    NextStep.CERTIFICATE_NAME: "the address was reached, but its certificate is for another host "
    "name: use a name that the certificate lists, or ask the owner for a new certificate",
    NextStep.CHECKSUM: "the file is not the expected one: delete it from the cache and download it "
    "again; if it differs again, compare the checksum with the one that its source publishes",
    NextStep.WATCHDOG: "a watchdog of the program's own ended it: its last line in the log has the "
    "reason",
    NextStep.CUT_TRACEBACK: "Python ended while it printed an error; a lost connection here is "
    "mostly a helper process on the same node that ended (a DataLoader worker, a pool): use fewer "
    "workers or more memory, or set num_workers=0 to see the error",
    NextStep.WORKER_LOG: "the part of the log that was read has no error of this process: look "
    "for its rows in the whole log (corral logs {job}); sys.exit or os._exit may have ended it "
    "without a message",
    NextStep.WORKER_KILLED: "a data worker was killed with SIGKILL, mostly because the memory was "
    "full: request more with resources: {memory: ...}, or use fewer workers (num_workers) and a "
    "smaller prefetch_factor; if memory was left, look for kill in the job's scripts",
    NextStep.SSH: "ssh refused the connection: check the key and known_hosts of the job's user; "
    "launchers that reach other nodes by ssh (pdsh, mpirun) are not needed, because "
    "Corral starts the program on every node of the job",
}
