"""Fixed sentences of MPI, srun and torchrun about the end of a job. They repeat that a
process failed, and never why."""

import re
from typing import Final

_AROUND: Final = re.compile(  # sentences without any fact about the failure
    r"^\s{0,9}(?:NOTE: invoking MPI_ABORT|You may or may not see output from|exactly when "
    r"(?:Open MPI|PRTE) kills them|\"abort\"\. This may have caused|terminated by signals sent by"
    r"|a non-zero exit code\. Per user-direction|the job to be terminated\. The first process"
    r"|Process name: \[\[|Proc: \[\[|Err(?:or)?code: \d|Exit code: {1,9}-?\d|with errorcode -?\d"
    r"|= {2,9}(?:PID \d|EXIT CODE: |CLEANING UP|YOU CAN IGNORE)|This does not necessarily mean)"
    r"|\bThis may have caused other processes in the application"
    r"|^\[[\w.-]{1,99}:\d{1,9}\] (?:Set MCA parameter|\d{1,9} more process(?:es)? ha)"
    r"|^(?:Failures:|Root Cause \(first observed failure\):|\[\d{1,6}\]:)$"
    r"|^\s{0,9}(?:time|host|rank|exitcode|error_file) {1,6}: "
    r"|^\s{0,9}traceback : (?:To enable traceback see|Signal \d)|^\s{0,9}<NO_OTHER_FAILURES>"
    r"|\bfailed \(exitcode: \d{1,9}\) local_rank: \d|^\S{1,200}\.py FAILED$"
)
_REPORTS: Final = re.compile(  # evidence only where nothing else is
    r"^\s{0,9}(?:(?:mpirun|mpiexec|prterun|orterun|prte) (?:detected that|has exited due)"
    r"|Primary job {1,2}terminated normally, but|MPI_ABORT was invoked on rank"
    r"|(?:= {2,9})?BAD TERMINATION OF ONE|\[?(?:mpiexec|proxy:)\S{1,60} (?:HYD|PMI)"
    r"|slurmstepd: error: \*\*\* (?:STEP|JOB) \S{1,30} ON \S{1,99} CANCELLED AT (?!.{0,60}DUE TO)"
    r"|srun: (?:Job step aborted|(?:Force )?Terminat(?:ing|ed) |error: .{1,99}: task))"
    r"|Abort\(\d{1,9}\) on node \d|In: PMI_Abort\("
    r"|\bSending process \d{1,9} closing signal"
)


def is_around(row: str) -> bool:
    """Return whether the row is a sentence around a launcher's report."""
    return _AROUND.search(row) is not None


def is_report(row: str) -> bool:
    """Return whether a launcher reports in this row that a process ended, without its
    cause."""
    return _REPORTS.search(row) is not None
