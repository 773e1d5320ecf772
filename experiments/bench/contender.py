"""What both sides of the benchmark share: a process that is told what to time, and answers.

A contender is a process of its own, which makes its programs and then waits. It reads one request
a line from its standard input, and answers with one line of JSON. So contenders can take turns,
one request at a time, and drifts of the machine hit all of them alike.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any


def seconds(run: Callable[[], Any]) -> float:
    """Times one call, which must not return before its work is done."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak_memory() -> int:
    """Peak resident size of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(answer: Callable[..., Any]) -> None:
    """Answers requests, each the arguments of a call as JSON, until there are no more."""
    out, sys.stdout = sys.stdout, sys.stderr  # so that nothing else gets between the answers
    print(json.dumps("ready"), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=out, flush=True)
