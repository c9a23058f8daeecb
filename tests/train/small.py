"""A run that processes of their own train, on one host or on several.

They come from a server that has imported what they need, and so begin at once. What is
trained is a small decoder, or the network of `toy`, which compiles in no time.
"""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from attn_jax import train
from attn_jax.models import Decoder, DecoderConfig
from tests.train import toy

CONFIG = DecoderConfig(
    vocab_size=11, max_length=8, num_layers=1, d_model=8, num_heads=2, dropout_rate=0.1
)


def processes() -> Any:
    """What starts processes that have this module already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["orbax.checkpoint", __name__])
    return context


def keep_compiled(directory: str) -> None:
    """What the first process compiles serves all, beside the directory of a run."""
    cache = Path(directory).parent / "compiled"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def make_run(steps: int, *, plain: bool) -> tuple[Any, Any]:
    """A new state, and the step that goes with it.

    plain: of `toy`, not of the decoder.
    """
    if plain:
        return toy.make_run()
    graph = nnx.split(nnx.eval_shape(_decoder))[0]

    def loss(params: Any, tokens: Any, rng: Any) -> Any:
        logits = nnx.merge(graph, params)(tokens[:, :-1], rng=rng)
        return train.cross_entropy(logits, tokens[:, 1:])

    schedule = train.cosine_schedule(1e-2, num_steps=steps, warmup_steps=3)
    optimizer = train.adamw(schedule)
    params = jax.jit(lambda: nnx.state(_decoder()))()
    state = train.init_train_state(params, optimizer, seed=0)
    return state, train.make_train_step(
        loss, optimizer, schedule=schedule, accumulation=2
    )


def _decoder() -> Decoder:
    return Decoder(CONFIG, rngs=nnx.Rngs(0))


def batch(step: int, rows: range = range(toy.ROWS), *, plain: bool) -> Any:
    """Rows of the global batch of a step."""
    if plain:
        return tuple(each[rows.start : rows.stop] for each in toy.batch_at(step))
    return np.stack(
        [np.random.default_rng((3, step, row)).integers(11, size=9) for row in rows]
    )


def go_on(directory: str, state: Any, train_step: Any, batch_at: Any, **options) -> Any:
    """Train in a directory to the end, from where it was left."""
    with (
        train.MetricLogger(directory, name="run", tensorboard=False) as logger,
        train.Checkpointer(os.path.join(directory, "checkpoints")) as checkpointer,
    ):
        if checkpointer.latest_step() is not None:
            state = checkpointer.restore(state)
        return train.fit(
            state,
            train_step,
            batch_at,
            logger=logger,
            log_every=1,
            checkpointer=checkpointer,
            progress=None,
            **options,
        )


def lines(directory: Path) -> list[dict[str, Any]]:
    """What a run recorded, without what depends on the clock."""
    return [
        {name: x for name, x in line.items() if name != "tokens_per_second"}
        for line in train.read_metrics(directory)
    ]
