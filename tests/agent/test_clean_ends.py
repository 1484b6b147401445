"""Errors in the output of ranks that ended with exit code 0."""

import pytest

from corral.agent.masked_errors import error_before, goes_on

HEAD = "Traceback (most recent call last):\n"
MAIN = (
    HEAD
    + '  File "t.py", line 3, in <module>\n    f()\n  File "t.py", line 1, in f\n    1 / 0\n'
)
INNER = HEAD + '  File "t.py", line 3, in run\n    f()\n'
DIVIDED = "ZeroDivisionError: division by zero"
CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("text", "script", "program"),
    [
        (f"{MAIN}{DIVIDED}\n", DIVIDED, DIVIDED),
        (f"== train\n{MAIN}{DIVIDED}\n== copy\n", DIVIDED, ""),
        (
            f"== train\n{MAIN}KeyError: 1\n{CHAINED}{MAIN}{DIVIDED}\n== copy\n",
            DIVIDED,
            "",
        ),
        (f"ERROR attempt 1 failed\n{MAIN}{DIVIDED}\ngoing on\n", "", ""),
        (f"trial 3:\n{MAIN}KeyError: 1\n{CHAINED}{MAIN}{DIVIDED}\ngoing on\n", "", ""),
        (f"step 1\n{INNER}{DIVIDED}\nstep 2\n", "", ""),
        (f"rank 0: {MAIN}{DIVIDED}\n", DIVIDED, DIVIDED),
        ("all well\n", "", ""),
        ("", "", ""),
    ],
)
def test_an_error_that_ended_a_program_is_found(
    text: str, script: str, program: str
) -> None:
    assert error_before(text.encode(), goes_on=True) == script
    assert error_before(text.encode(), goes_on=False) == program


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("bash run.sh", True),
        ("python a.py; python b.py", True),
        ("python a.py\npython b.py", True),
        ("python a.py | tee log", True),
        ("python a.py || python b.py", False),
        ("until python a.py; do sleep 1; done", False),
        ("X=1 exec /opt/bin/python3.11 a.py --x 1", False),
        ("torchrun --nproc-per-node 2 a.py", False),
    ],
)
def test_a_shell_goes_on_after_one_of_several_commands(
    command: str, expected: bool
) -> None:
    assert goes_on(command) is expected
