"""Measures JAX programs on what is attached, compiles them for what is not, and compares runs.

  python main.py                              measure this machine (same as: run)
  python main.py run --config=configs/matmul.py --precision=fp32,bf16
  python main.py run --device=none --targets=tpu:v5e:4x4,gpu:h100_sxm:8    compile only
  python main.py run --resume --workdir=DIR   carry on where a stopped run ended
  python main.py compare DIR DIR              side by side; --html=FILE, --csv, --markdown, --json
  python main.py compare --baseline=DIR DIR   is it slower? exit status 1 if so
  python main.py compare --claims DIR         what is said of GPUs and TPUs, and whether it holds
  python main.py summary DIR                  one run in ten lines
  python main.py plan --model=llama2_70b --tokens=2e12 --targets=tpu:v5p:8x8x8    how long, how much
  python main.py plan --published             what published trainings say of such plans
  python main.py list [devices|chips [NAME]|workloads|configs|precisions|models|flags]

Exit status: 0 all is well; 1 a case failed; 2 the request was wrong.
"""

import sys

from absl import app, flags
from ml_collections import config_flags

from accel_bench import cli

config_flags.DEFINE_config_file(
    "config", None, "Experiment: a file in configs/, or a run's config.json. Any field can be "
    "set, as in --config.seed=1.",
)  # fmt: skip
flags.DEFINE_enum(
    "device", None, ["auto", "cpu", "gpu", "tpu", "none"],
    "What to measure on. auto (the default) takes the best that is attached and says which; none "
    "measures nothing and leaves --targets.",
)  # fmt: skip
flags.DEFINE_string(
    "targets", None, "Comma-separated accelerators to compile for: tpu:GENERATION:TOPOLOGY, "
    "gpu:CHIP:COUNT, gpu:CHIP:HOSTSxCOUNT, or auto.",
)  # fmt: skip
flags.DEFINE_string("precision", None, "Comma-separated precisions, such as fp32,bf16,int8.")
flags.DEFINE_string("mesh", None, "Named axes and sizes: data:4,model:2 or fsdp:*,model:8.")
flags.DEFINE_integer("fake_devices", None, "So many virtual CPU devices.", lower_bound=1)
flags.DEFINE_string(
    "coordinator", None, "HOST:PORT where the first of several processes listens; without it, what "
    "a launcher such as SLURM says. See docs/clusters.md.",
)  # fmt: skip
flags.DEFINE_integer(
    "num_processes", None, "How many processes run together; without --coordinator they are "
    "started here, on this machine.", lower_bound=1,
)  # fmt: skip
flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.", lower_bound=0)
flags.DEFINE_string("workdir", None, "Where records go; by default a new folder below runs/.")
flags.DEFINE_bool("dump_hlo", None, "Keep each compiled program's text in the workdir.")
flags.DEFINE_bool(
    "find_smallest_fit", None, "Search the sizes up to each target's for the first that fits."
)
flags.DEFINE_string("compile_cache", None, "auto, off, or a directory for what was compiled.")
flags.DEFINE_bool("resume", False, "Carry on in --workdir: finish the rest, repeat nothing.")
flags.DEFINE_bool("retry", False, "With --resume: run again what went wrong.")
flags.DEFINE_bool("strict", False, "Exit with 1 also where a row is unsupported or skipped.")
flags.DEFINE_float("timeout_s", None, "Seconds after which a case is ended.")
flags.DEFINE_bool("deterministic", None, "Ask the back end for reproducible results.")
flags.DEFINE_bool("profile", None, "Read device time from a trace too, as a second figure.")
flags.DEFINE_string("baselines", None, "Libraries beside: numpy,numpy_1thread,torch,cupy.")
flags.DEFINE_string("reference", None, "compare: letter, target or path that ratios are to.")
flags.DEFINE_string("html", None, "compare: write a report that opens in any browser, offline.")
flags.DEFINE_string("csv", None, "compare: write every row as comma-separated values.")
flags.DEFINE_string("markdown", None, "compare, plan, list chips: write tables as Markdown.")
flags.DEFINE_string("json", None, "compare, plan: write all figures as JSON.")
flags.DEFINE_string("baseline", None, "compare: the run to hold the other one against.")
flags.DEFINE_bool("claims", False, "compare: judge claims about GPUs and TPUs by these records.")
flags.DEFINE_float("threshold", 5.0, "compare --baseline: per cent by which a case may be slower.")
flags.DEFINE_string("model", None, "plan: what to train; see list models.")
flags.DEFINE_float("tokens", None, "plan: tokens to train on, such as 2e12.")
flags.DEFINE_float("batch_tokens", None, "plan: tokens of a batch of the optimizer.")
flags.DEFINE_integer("length", None, "plan: tokens of a sequence.")
flags.DEFINE_string("records", None, "plan: workdirs whose train steps say what is reached.")
flags.DEFINE_string("prices", None, "plan: money for an hour of a chip: v5p=4.2,h100_sxm=2.5.")
flags.DEFINE_integer("plan_compiles", 8, "plan: compilations for each target, at most.")
flags.DEFINE_float("plan_budget_s", 600.0, "plan: seconds after which no other one starts.")
flags.DEFINE_bool("published", False, "plan: published trainings beside what is predicted.")
flags.DEFINE_enum(
    "isolation", None, ["auto", "process", "none"],
    "process: cases run in a worker process; none: in this one; auto: whichever works.",
)  # fmt: skip


def main() -> None:
    """Carries out what stands on the command line."""
    app.run(
        lambda arguments: sys.exit(cli.main(arguments, flags.FLAGS)),
        flags_parser=lambda argv: cli.parse(flags.FLAGS, argv),
    )


if __name__ == "__main__":
    main()
