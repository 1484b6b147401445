"""The room's front door, with and without torch."""

import subprocess
import sys

from tests.train.support import ROOT


def test_without_torch_the_import_says_what_to_install() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import corral.train"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True
    )
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: corral.train needs PyTorch, which is not installed here; "
        "run: pip install 'corral[train]'"
    )
