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


NEXT_STEPS: Final[Mapping[NextStep, str]] = {
    NextStep.ILLEGAL_INSTRUCTION: "it was built for another CPU (SIGILL): build it for the node's, "
    "without -march=native of another machine, or install another package",
    NextStep.BUS_ERROR: "a mapped file was truncated, or /dev/shm or a disk is full (SIGBUS): "
    "check the files that it maps, and df -h /dev/shm",
    NextStep.ARITHMETIC: "an integer was divided by zero or overflowed (SIGFPE): run it under gdb",
    NextStep.SEGMENTATION: "run it under gdb, or with PYTHONFAULTHANDLER=1 if it is Python; deep "
    "recursion needs a larger stack: ulimit -s unlimited",
    NextStep.ABORTED: "a check of its own failed (SIGABRT): the lines before the end of its log "
    "tell which; run it under gdb for the call stack",
    NextStep.TERMINATED: "a process or a person sent SIGTERM: look for a timeout, kill or scancel "
    "in its scripts; the kernel sends SIGKILL when memory is full",
    NextStep.TIMED_OUT: "the command timeout in its script ended it (exit code 124, or 137 by "
    "SIGKILL): raise its limit, or find out why it takes longer",
    NextStep.RECURSION: "a function calls itself without an end: mend it; a higher limit only "
    "delays the error",
    NextStep.STANDARD_INPUT: "ranks have no standard input: pass the answer as an argument or a "
    "file, or use the program's --yes",
    NextStep.JAVA_HEAP: "raise the JVM's heap (-Xmx), within the memory of resources:",
    NextStep.NODE_HEAP: "raise the heap of Node.js: NODE_OPTIONS=--max-old-space-size=MB, within "
    "the memory of resources:",
    NextStep.KV_CACHE: "lower max_model_len or raise gpu_memory_utilization; or use more GPUs",
    NextStep.STATE_DICT: "the file can be read, but the model in the code has other layers or "
    "sizes: compare it with the configuration that the checkpoint was saved with",
    NextStep.HUB: "download the model on a node with access to the hub first, or check the proxy, "
    "HF_HUB_OFFLINE and HF_HOME",
    NextStep.MODULE_FILES: "list what the node has: module avail, module spider NAME",
    NextStep.RUST: "look at the line of the panic; RUST_BACKTRACE=1 prints the call stack",
    NextStep.GO: "look at the first goroutine below the message in its log",
    NextStep.JAVA: "look at the first line of its stack trace that is of the program's packages",
    NextStep.JULIA: "look at the first frame of its stack trace that is of the program's files",
    NextStep.R: "look at the call that the message names; options(error = traceback) prints more",
    NextStep.NODE: "look at the file and line above the message in its log",
    NextStep.CPP: "catch the exception, or run it under gdb with: catch throw",
    NextStep.COMPILER: "mend the line that the compiler names; then submit again",
    NextStep.SANITIZER: "look at the call stack below the report in its log",
    NextStep.MPI_ABORT: "look at what that rank printed before MPI_ABORT",
    NextStep.FIRST_LINE: "look at the file and line that the message names",
    NextStep.MPI_SLOTS: "compare -n of mpirun with nodes: and ranks of the job, or pass "
    "--oversubscribe",
    NextStep.LINE_ENDS: "its lines end in CRLF, as on Windows: convert the file with dos2unix "
    "FILE, or sed -i 's/\\r$//' FILE",
    NextStep.BATCH_SHAPES: "the samples of a batch differ in shape: pad, crop or filter them in "
    "the dataset, or pass a collate_fn to the DataLoader",
    NextStep.NATIVE_CODE: "compiled code that is called at this place crashed: check what is "
    "passed to it, its build and its version; gdb shows its own call stack",
    NextStep.OTHER_RANKS: "the named rank waited: look at what the other ranks did last (corral "
    "logs --rank); all ranks must call the same collectives, and as often",
    NextStep.LAST_LINES: "its log shows no error: read what comes before (corral logs {job}); a "
    "shell script with set -e ends so where a command fails silently (grep, test, diff): add "
    "set -x",
    NextStep.SILENT: "it printed nothing: add set -x to a shell script, or python -X faulthandler "
    "-u, and run it again",
    NextStep.EARLIER_COMMAND: "mend the first of the quoted lines: the second is its consequence; "
    "set -e in the script would have ended it there",
    NextStep.ENCODING: "the bytes are not in the encoding that is read: pass encoding=, convert "
    "the file with iconv, or find out whether it is text at all",
    NextStep.LINKER: "link the library that defines the symbol (-l, behind what uses it), or "
    "install it",
    NextStep.CPU_TIME: "its limit of CPU time is reached (SIGXCPU): raise ulimit -t in its script",
    NextStep.CIRCULAR_IMPORT: "two files import each other, or a file has the name of a module "
    "that it imports: rename it, or import inside of a function",
    NextStep.OTHER_VERSION: "the package is installed in another version than the program was "
    "written for: pin the version that has this name, or change the program",
    NextStep.LFS: 'look at the beginning of the file (head -c 200 FILE): if it is "version '
    'https://git-lfs...", it is a pointer in place of the weights: git lfs pull; else it is '
    "damaged: load another",
    NextStep.CLOSED_PIPE: "it wrote into a pipe that its reader had closed (SIGPIPE), as in: yes | "
    "head; under set -o pipefail the script fails by it: append || true, or read it all",
    NextStep.OTHER_PYTHON: "it needs another Python than the one that runs it, mostly a newer "
    "Python: choose one in setup: (uv venv --python 3.12), or another image",
    NextStep.NAN_INPUT: "the data has missing or infinite values: find them (df.isna().sum()), "
    "then drop or impute them (SimpleImputer) before fit",
    NextStep.INTERPRETER: "the interpreter of its first line is not there, or the lines end in "
    "CRLF (head -1 FILE | cat -A shows ^M$ then): sed -i 's/\\r$//' FILE",
    NextStep.FILE_SIZE: "its limit of file sizes is reached (SIGXFSZ): raise ulimit -f in its "
    "script",
}
