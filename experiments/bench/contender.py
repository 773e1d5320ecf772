"""What the sides of the benchmark share: a process that holds programs, and times one when asked.

    python -m experiments.bench.ours keep|default PROGRAMS     # a JSON list of options for each

It makes its programs and says how that went, in one line of JSON; then, for each line of its
input, runs the program of that number twice and answers with the seconds of the second time; and in
the end says how much memory it took. Processes wait for their turn, so drifts of the machine hit
all of them alike.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from experiments.memory import keep_memory, peak_memory

Program = tuple[Callable[[], Any], dict[str, Any]]  # what runs it once, and facts about it


def serve(makers: dict[str, Callable[..., Program]]) -> None:
    """Makes programs, each with the maker that its option `kind` names, and times them."""
    out = os.fdopen(os.dup(1), "w")  # so that nothing else gets between the answers
    os.dup2(2, 1)
    memory, programs = sys.argv[1:]
    if memory == "keep" and not keep_memory():
        raise SystemExit("the allocator cannot be told to keep memory: there is no glibc")
    made = [makers[options.pop("kind")](**options) for options in json.loads(programs)]
    print(json.dumps([facts for _, facts in made]), file=out, flush=True)
    for line in sys.stdin:
        run, _ = made[int(line)]
        run()  # steps follow each other in use; here, the processor has done something else
        start = time.perf_counter()
        run()
        print(json.dumps(time.perf_counter() - start), file=out, flush=True)
    print(json.dumps(peak_memory()), file=out, flush=True)
