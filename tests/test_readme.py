"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_example_prints_what_it_says():
    text = README.read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [printed] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


def test_targets_exist():
    makefile = (README.parent / "Makefile").read_text()
    targets = set(re.findall(r"`?make ([a-z]+)", README.read_text()))
    assert targets
    assert targets <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
