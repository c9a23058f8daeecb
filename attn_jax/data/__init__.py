"""Data without downloads: local text as bytes, and synthetic tasks.

Every batch is a pure function of (seed, global step) and comes as NumPy arrays.
"""

from attn_jax.data.batch import Batch
from attn_jax.data.synthetic import copy_batch, recall_batch
from attn_jax.data.text import ByteCorpus, decode_text, encode_text, load_corpus
from attn_jax.data.windows import validation_batches, window_batch

__all__ = [
    "Batch",
    "ByteCorpus",
    "copy_batch",
    "decode_text",
    "encode_text",
    "load_corpus",
    "recall_batch",
    "validation_batches",
    "window_batch",
]
