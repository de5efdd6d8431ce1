"""The worker process: starts a back end once and runs cases as they are sent.

Spoken over the standard streams in JSON lines. The command line holds how to start; each line in
asks for one case; lines out are `ready` or `failed` once, then `stage` and `done` for each case.
Whatever libraries print goes to the standard error stream, which the parent keeps as a log.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


def _take_stdout() -> Any:
    """The stream to the parent; prints of libraries go to stderr from now on."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def _die_with_parent() -> None:
    """Lets Linux end this process with its parent, and choose it first when memory runs out."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    with contextlib.suppress(OSError):  # some containers forbid it; nothing depends on it
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read_requests(requests: queue.Queue) -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)  # the parent closed the stream or is gone


def main() -> None:
    """Entry point of `python -m accel_bench.worker '{"platform": ..., "together": ...}'`."""
    out = _take_stdout()
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    start = json.loads(sys.argv[1])

    def say(event: str, **fields: Any) -> None:
        from accel_bench.record import strict

        out.write(json.dumps(strict({"event": event, **fields}), allow_nan=False) + "\n")

    requests: queue.Queue = queue.Queue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()

    from accel_bench import env

    together = start.get("together")
    if together and together["cores"]:
        os.sched_setaffinity(0, together["cores"])
    environment = env.capture()
    if together:
        environment["host"] = socket.gethostname()
    for module in start["hidden"]:
        sys.modules[module] = None  # type: ignore[assignment] - so that an import of it fails
    try:
        import jax

        jax.config.update("jax_enable_compilation_cache", False)
        from accel_bench import execute

        if start["target"]:
            from accel_bench import compile as compiling
            from accel_bench.target import parse

            session: Any = compiling.start(parse(start["target"]), start["axes"])
        else:
            session = execute.start(start["platform"], together)
    except Exception as error:  # says why and ends: the parent decides what to do
        say("failed", reason=str(error).strip().split("\n")[0], env=environment)
        raise
    environment["compilation_cache"] = "off"
    environment["default_matmul_precision"] = jax.config.values["jax_default_matmul_precision"]
    say("ready", env=environment, target=session.target)

    from accel_bench.cases import Case
    from accel_bench.timing import Budget

    while True:
        request = requests.get()
        case, on_stage = Case(**request["case"]), lambda stage: say("stage", text=stage)
        if start["target"]:
            hlo_file = request["hlo_file"]
            outcome = compiling.execute(session, case, hlo_file and Path(hlo_file), on_stage)
        else:
            with tempfile.TemporaryDirectory() as elsewhere:
                profile_dir = request["profile_dir"]
                if profile_dir and together and together["process_id"]:
                    profile_dir = elsewhere  # the run's own folder is the first one's
                outcome = execute.execute(
                    session,
                    case,
                    request["axes"],
                    request["seed"],
                    Budget(**request["budget"]),
                    Path(profile_dir) if profile_dir else None,
                    on_stage,
                    Path(request["checkpoint_dir"]),
                )
        say("done", **dataclasses.asdict(outcome))


if __name__ == "__main__":
    main()
