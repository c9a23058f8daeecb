"""Compiles the step for every mesh, writes results.json, draws and shows it."""

import time
from collections.abc import Sequence

import jax

from experiments.common.errors import fail
from experiments.common.main import run_program
from experiments.common.plan import ConfigPlan, plan_of, publish
from experiments.scaling import plot, table
from experiments.scaling.command_line import PROGRAM, parse
from experiments.scaling.config import NOT_SHARED, ScalingConfig
from experiments.scaling.lowering import measure, most_devices


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> ConfigPlan[ScalingConfig]:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    simulate(most_devices(config))
    return plan_of(config, NOT_SHARED, PROGRAM, arguments)


def simulate(devices: int) -> None:
    """So many devices of a CPU, unless there are as many already."""
    if jax.config.jax_num_cpu_devices < devices:  # pyright: ignore
        jax.config.update("jax_platforms", "cpu")
        try:
            jax.config.update("jax_num_cpu_devices", devices)
        except RuntimeError:  # Only a mesh to run on has started JAX by now.
            remedy = "pass --meshes, which are compiled for devices that aren't there"
            fail("--mesh", "one", "none, since nothing runs here", remedy)


def run(plan: ConfigPlan[ScalingConfig]) -> None:
    """Compile for every mesh, then write and show the results."""
    config, workdir = plan.config, plan.workdir
    begin, rows = time.perf_counter(), []
    for line in config.meshes:
        rows.append(measure(config, line))
        print(f"{line}: compiled in {rows[-1]['compile_seconds']} s", flush=True)
    results = {
        "experiment": "scaling",
        "preset": config.preset,
        **plan.origin,
        "config": {**config.shared(), "seeds": [0]},
        "seconds": round(time.perf_counter() - begin, 1),
        "rows": rows,
    }
    publish(results, workdir, plot, table)
