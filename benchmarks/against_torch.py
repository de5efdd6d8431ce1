"""The suite's model against the same architecture in plain PyTorch, on this CPU, in fp32.

    python benchmarks/against_torch.py --torch_python=/path/to/python-that-has-torch

Prints tokens per second of both and their ratio, above 1 where the suite's model is faster: `best`
of the fastest rounds, `median` of the rounds' ratios (each round against its neighbours in time),
and the range that holds the middle half of these. PyTorch is timed eager and compiled (which needs
a C++ compiler); the faster of the two counts. All start from the same weights, and must agree on
the first loss and on the logits before anything is timed.

Each contestant is a process of its own, since the thread pools of one library disturb the other;
they live through the whole run and take turns, so that a change in the machine's speed hits all.
Where other programs run too, PyTorch's threads lose far more time waiting for each other than
XLA's: there compare `--cpu_time`, the CPU time of one core. `--before=DIR` adds the model of
another checkout to the turns.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TURN_S = 0.1  # how long one turn is to last at least
TORCH = ("eager", "compiled")
RTOL = 1e-3  # of logits and losses, relative to the largest


class Case(NamedTuple):
    """One phase of a model of one size; `length` tokens in each of `batch` sequences."""

    phase: str
    size: str
    batch: int
    length: int

    @property
    def tokens(self) -> int:
        """What one call reads, in all sequences."""
        return self.batch * (1 if self.phase == "decode" else self.length)


CASES = {
    "train": Case("train", "gpt2_char", 12, 256),
    "prefill": Case("prefill", "gpt2_char", 12, 256),
    "decode": Case("decode", "gpt2_char", 8, 256),
    "train_124m": Case("train", "gpt2_124m", 1, 256),
    "prefill_124m": Case("prefill", "gpt2_124m", 1, 256),
    "decode_124m": Case("decode", "gpt2_124m", 8, 256),
}


class Step(NamedTuple):
    """What a contestant does in a case: `run` once more, and what its first call came to."""

    run: Callable[[], None]
    first: np.ndarray


def draw_tokens(case: Case, vocabulary: int) -> np.ndarray:
    """As many as a train step needs; the other phases leave out the last."""
    shape = (case.batch, case.length + 1)
    return np.random.default_rng(0).integers(vocabulary, size=shape, dtype=np.int32)


def jax_case(case: Case, weights: Path, checkout: str) -> Step:
    """The suite's own step, from the weights that both take."""
    sys.path.insert(0, checkout)
    import jax
    import jax.numpy as jnp

    from models import train_step as steps
    from models.sizes import SIZES

    inference: Any = steps  # in an older checkout
    with contextlib.suppress(ImportError):
        from models import inference
    config = SIZES[case.size]
    tokens = draw_tokens(case, config.vocab_size)
    state = steps.create_train_state(config, seed=0)
    params = state.params
    if not weights.exists():
        named = {jax.tree_util.keystr(k): v for k, v in jax.tree.leaves_with_path(params)}
        np.savez(weights, config=json.dumps(dataclasses.asdict(config)), **named)
    held: list[Any] = []

    if case.phase == "train":
        step = jax.jit(partial(steps.train_step, config), donate_argnums=0)
        held = list(step(state, jnp.asarray(tokens)))
        first = held[1]["loss"]

        def run() -> None:
            held[:] = step(held[0], tokens)
            jax.block_until_ready(held)

        return Step(run, np.asarray(first))

    cache = inference.init_cache(config, case.batch, case.length)
    read = jax.jit(partial(inference.prefill, config), donate_argnums=1)
    logits, cache = read(params, cache, tokens[:, :-1])
    if case.phase == "prefill":
        held = [cache]

        def run() -> None:
            logits, held[0] = read(params, held[0], tokens[:, :-1])
            jax.block_until_ready((logits, held))

        return Step(run, np.asarray(logits))

    def decode(params, cache, tokens_B, position):
        logits, cache = inference.decode_step(config, params, cache, tokens_B, position)
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache, logits

    step = jax.jit(decode, donate_argnums=1)
    last = jnp.int32(case.length - 1)
    held = list(step(params, cache, tokens[:, -2], last))
    first = held[2]

    def run() -> None:
        held[:] = step(params, held[1], held[0], last)
        jax.block_until_ready(held)

    return Step(run, np.asarray(first))


def torch_case(case: Case, weights: Path, is_compiled: bool) -> Step:
    """The same architecture in plain PyTorch."""
    import torch
    import torch.nn.functional as F

    class Model(torch.nn.Module):
        """One key-value head per head, GELU, tied embedding, no biases."""

        def __init__(self, config: dict, values: dict[str, np.ndarray]):
            super().__init__()
            self.layers, self.heads = config["num_layers"], config["num_heads"]
            self.epsilon = config["norm_epsilon"]
            D, Q = config["width"], config["head_size"]
            blocks = "['blocks']['{}']".format

            def per_layer(name: str, shape) -> torch.nn.ParameterList:
                # nn.Linear keeps (out, in).
                stacked = values[blocks(name)]
                return torch.nn.ParameterList(
                    torch.tensor(np.ascontiguousarray(shape(layer))) for layer in stacked
                )

            self.embedding = torch.nn.Parameter(torch.tensor(values["['embedding_VD']"]))
            self.final_norm = torch.nn.Parameter(torch.tensor(values["['final_norm_D']"]))
            self.norm_1 = per_layer("attention_norm_D", lambda w: w)
            self.norm_2 = per_layer("mlp_norm_D", lambda w: w)
            # (D, heads, 3, Q) to (3 x heads x Q, D)
            self.qkv = per_layer("qkv_DKCQ", lambda w: w.transpose(2, 1, 3, 0).reshape(-1, D))
            self.out = per_layer("out_KGQD", lambda w: w.reshape(-1, D).T)
            self.up = per_layer("up_DF", lambda w: w.T)
            self.down = per_layer("down_FD", lambda w: w.T)
            frequency = config["rope_base"] ** (-torch.arange(0, Q // 2) / (Q // 2))
            angle = torch.arange(config["context"])[:, None] * frequency
            self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], dim=-1))
            self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], dim=-1))

        def forward(self, tokens, cache=None, position: int = 0):
            """Hidden states after the last norm; a cache is read and written in place."""
            B, T = tokens.shape
            cos, sin = self.cos[position : position + T], self.sin[position : position + T]

            def rotate(x):
                left, right = x.chunk(2, dim=-1)
                return x * cos + torch.cat([right, left], dim=-1) * sin

            x = F.embedding(tokens, self.embedding)
            D = x.shape[-1]
            for i in range(self.layers):
                h = F.rms_norm(x, (D,), self.norm_1[i], self.epsilon)
                qkv = F.linear(h, self.qkv[i]).view(B, T, 3, self.heads, -1)
                q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
                q, k = rotate(q), rotate(k)
                if cache is not None:
                    cache[i][0][:, :, position : position + T] = k
                    cache[i][1][:, :, position : position + T] = v
                    k, v = (kept[:, :, : position + T] for kept in cache[i])
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
                x = x + F.linear(mixed.transpose(1, 2).reshape(B, T, -1), self.out[i])
                h = F.rms_norm(x, (D,), self.norm_2[i], self.epsilon)
                up = F.gelu(F.linear(h, self.up[i]), approximate="tanh")
                x = x + F.linear(up, self.down[i])
            return F.rms_norm(x, (D,), self.final_norm, self.epsilon)

        def loss(self, tokens):
            logits = F.linear(self(tokens[:, :-1]), self.embedding)
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        def next_logits(self, tokens, cache, position: int):
            return F.linear(self(tokens, cache, position)[:, -1], self.embedding)

    values = dict(np.load(weights))
    config = json.loads(str(values.pop("config")))
    model = Model(config, values)
    tokens = torch.tensor(draw_tokens(case, config["vocab_size"])).long()
    finish = partial(torch.compile, dynamic=False) if is_compiled else lambda fn: fn

    if case.phase == "train":
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
        )
        loss_of = finish(model.loss)

        def step() -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(tokens)
            loss.backward()
            optimizer.step()
            return loss

        return Step(step, step().detach().numpy())

    B, S = case.batch, case.length
    cache = [
        torch.zeros(2, B, config["num_heads"], S, config["head_size"])
        for _ in range(config["num_layers"])
    ]
    logits_of = finish(model.next_logits)
    with torch.inference_mode():
        logits = model.next_logits(tokens[:, :-1], cache, 0)
        if case.phase == "prefill":

            def run() -> None:
                with torch.inference_mode():
                    logits_of(tokens[:, :-1], cache, 0)

            run()
            return Step(run, logits.numpy())

        def decode(tokens):
            with torch.inference_mode():
                logits = logits_of(tokens, cache, S - 1)
                return logits.argmax(-1, keepdim=True), logits

        chosen, logits = decode(tokens[:, -2:-1])
        held = [chosen]

        def run() -> None:
            held[0], _ = decode(held[0])

        return Step(run, logits.numpy())


def serve(kind: str, weights: str, checkout: str, cpu_time: bool) -> None:
    """A contestant: for each case named on a line it answers with seconds per call of a turn."""
    answers, sys.stdout = sys.stdout, sys.stderr
    clock = time.process_time if cpu_time else time.perf_counter
    if cpu_time:  # before any library counts the cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    steps: dict[str, Step] = {}
    calls: dict[str, int] = {}

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    for line in sys.stdin:
        verb, name = line.split()
        if verb == "prepare":
            case, stored = CASES[name], Path(weights) / f"{CASES[name].size}.npz"
            if kind == "jax":
                steps[name] = jax_case(case, stored, checkout)
            else:
                steps[name] = torch_case(case, stored, is_compiled=kind == "compiled")
            steps[name].run()
            start = clock()
            steps[name].run()
            calls[name] = max(1, round(TURN_S / (clock() - start)))
            answer(steps[name].first.tolist())
        elif verb == "drop":
            del steps[name]
            answer(None)
        else:
            steps[name].run()  # wakes the threads
            start = clock()
            for _ in range(calls[name]):
                steps[name].run()
            answer((clock() - start) / calls[name])


class Contestant:
    """One side, in a process of its own that times a step when told to."""

    def __init__(self, name: str, arguments: list[str]):
        self.name = name
        settings = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", **os.environ}
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=settings,
        )

    def ask(self, verb: str, case: str) -> Any:
        assert self.process.stdin and self.process.stdout
        print(verb, case, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended in case {case!r}; its message is above")
        return json.loads(line)

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def compete(name: str, contestants: list[Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds per call of each contestant in each round."""
    expected = None
    for contestant in contestants:
        first = np.asarray(contestant.ask("prepare", name))
        expected = first if expected is None else expected
        error = np.max(np.abs(first - expected)) / np.max(np.abs(expected))
        if not error < RTOL:
            raise SystemExit(f"{contestant.name} differs by {error:.1e} in {name}")
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            seconds[contestant.name].append(contestant.ask("time", name))
    for contestant in contestants:
        contestant.ask("drop", name)
    return seconds


def report(name: str, seconds: dict[str, list[float]]) -> None:
    """Prints each side's tokens/s and its ratio to the faster PyTorch."""
    tokens = CASES[name].tokens
    torch = min((k for k in seconds if k in TORCH), key=lambda k: min(seconds[k]))
    for contestant, times in seconds.items():
        best, typical = tokens / min(times), tokens / statistics.median(times)
        line = f"{name:13} {contestant:9} {best:9.0f} {typical:9.0f}"
        if contestant not in TORCH:
            ratios = [theirs / own for theirs, own in zip(seconds[torch], times, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            line += f"   {min(seconds[torch]) / min(times):5.2f}  {middle:5.2f}"
            line += f" ({low:.2f} to {high:.2f}) of {torch}"
        print(line, flush=True)


def main() -> None:
    """Runs the sides in turn and prints the ratios."""
    parser = argparse.ArgumentParser(description="The model against plain PyTorch, on the CPU.")
    parser.add_argument("--torch_python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--cases", default=",".join(CASES), help="some of these, with commas")
    parser.add_argument("--rounds", type=int, default=15, help="at least 2")
    parser.add_argument("--before", default="", help="another checkout, to take turns as well")
    parser.add_argument("--torch", default=",".join(TORCH), help="one of these, or both")
    parser.add_argument(
        "--cpu_time", action="store_true", help="one core, and its CPU time: for a machine in use"
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    parser.add_argument("--checkout", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.weights, args.checkout, args.cpu_time)
        return
    with tempfile.TemporaryDirectory() as weights:

        def start(name: str, python: str, kind: str, checkout: str = str(ROOT)) -> Contestant:
            told = [f"--serve={kind}", f"--weights={weights}", f"--checkout={checkout}"]
            told += ["--cpu_time"] if args.cpu_time else []
            return Contestant(name, [python, __file__, *told])

        contestants = [start("ours", sys.executable, "jax")]
        if args.before:
            contestants.append(start("before", sys.executable, "jax", args.before))
        for kind in args.torch.split(","):
            contestants.append(start(kind, args.torch_python, kind))
        print(f"load {os.getloadavg()[0]:.1f}, {args.rounds} rounds; tokens/s and ours / torch's")
        print(f"{'':23}      best    median    best  median (half of the rounds)")
        for name in args.cases.split(","):
            report(name, compete(name, contestants, args.rounds))
        for contestant in contestants:
            contestant.end()
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
