"""Sentence pairs of TensorFlow Datasets, without TensorFlow and without a download."""

import os
from typing import Any

from attn_jax.data._checks import fail
from attn_jax.data.parallel import ParallelText
