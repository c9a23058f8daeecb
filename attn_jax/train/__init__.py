"""Losses, schedules, the training step, the loop, and what it leaves on disk.

Orbax, TensorBoard and rich are imported where they are first used.
"""

from attn_jax.train import hosts
from attn_jax.train._layout import Placed, layout, layout_table
from attn_jax.train.averaging import average_checkpoints
from attn_jax.train.checkpoints import Checkpointer
from attn_jax.train.filing import CheckpointMismatchError
from attn_jax.train.hosts import HostLostError
from attn_jax.train.logistics import (
    mixture_of_logistics_log_likelihood,
    sample_mixture_of_logistics,
)
from attn_jax.train.loop import FitResult, TrainingInterrupted, fit
from attn_jax.train.losses import cross_entropy
from attn_jax.train.metrics import MetricLogger, MetricsWriteError, read_metrics
from attn_jax.train.optimizers import adam, adamw, decay_mask, radam
from attn_jax.train.progress import (
    Progress,
    ProgressBar,
    ProgressLines,
    make_progress,
)
from attn_jax.train.recorder import NonFiniteError
from attn_jax.train.schedules import cosine_schedule, noam_schedule
from attn_jax.train.sharding import (
    init_on,
    make_mesh,
    parse_mesh,
    shard_batch,
    shardings,
)
from attn_jax.train.state import Skipped, TrainState, init_train_state
from attn_jax.train.step import LossFn, StepMetrics, TrainStep, make_train_step
from attn_jax.train.storage import CheckpointReadError, CheckpointWriteError

__all__ = [
    "CheckpointMismatchError",
    "CheckpointReadError",
    "CheckpointWriteError",
    "Checkpointer",
    "FitResult",
    "HostLostError",
    "LossFn",
    "MetricLogger",
    "MetricsWriteError",
    "NonFiniteError",
    "Placed",
    "Progress",
    "ProgressBar",
    "ProgressLines",
    "Skipped",
    "StepMetrics",
    "TrainState",
    "TrainStep",
    "TrainingInterrupted",
    "adam",
    "adamw",
    "average_checkpoints",
    "cosine_schedule",
    "cross_entropy",
    "decay_mask",
    "fit",
    "hosts",
    "init_on",
    "init_train_state",
    "layout",
    "layout_table",
    "make_mesh",
    "make_progress",
    "make_train_step",
    "mixture_of_logistics_log_likelihood",
    "noam_schedule",
    "parse_mesh",
    "radam",
    "read_metrics",
    "sample_mixture_of_logistics",
    "shard_batch",
    "shardings",
]
