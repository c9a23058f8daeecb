"""Data without downloads: local text, parallel text, images, and synthetic tasks.

Every batch is a pure function of (seed, global step) and comes as NumPy arrays.
"""

from attn_jax.data.batch import Batch
from attn_jax.data.documents import (
    Documents,
    parquet_documents,
    text_documents,
    tfds_documents,
)
from attn_jax.data.idx import read_idx
from attn_jax.data.images import (
    ImageSet,
    image_batch,
    image_batches_in_order,
    load_digit_images,
    load_idx_images,
)
from attn_jax.data.labelled import (
    LabelledBatch,
    LabelledBatches,
    LabelledText,
    load_labelled,
    split_labelled,
)
from attn_jax.data.pairs import PairBatch, PairBatches, bucket_lengths, pair_batches
from attn_jax.data.parallel import ParallelText, load_parallel, load_tsv
from attn_jax.data.shard_writing import training_texts, write_shards
from attn_jax.data.shards import TokenShards, load_shards
from attn_jax.data.synthetic import copy_batch, recall_batch
from attn_jax.data.text import ByteCorpus, decode_text, encode_text, load_corpus
from attn_jax.data.tfds_images import load_tfds_images
from attn_jax.data.tfds_pairs import load_tfds_pairs
from attn_jax.data.tfds_texts import load_tfds_labelled, load_tfds_texts
from attn_jax.data.token_split import ShardBatch, TokenSplit
from attn_jax.data.vocabulary import Vocabulary, load_vocabulary, train_vocabulary
from attn_jax.data.windows import validation_batches, window_batch

__all__ = [
    "Batch",
    "ByteCorpus",
    "Documents",
    "ImageSet",
    "LabelledBatch",
    "LabelledBatches",
    "LabelledText",
    "PairBatch",
    "PairBatches",
    "ParallelText",
    "ShardBatch",
    "TokenShards",
    "TokenSplit",
    "Vocabulary",
    "bucket_lengths",
    "copy_batch",
    "decode_text",
    "encode_text",
    "image_batch",
    "image_batches_in_order",
    "load_corpus",
    "load_digit_images",
    "load_idx_images",
    "load_labelled",
    "load_parallel",
    "load_shards",
    "load_tfds_images",
    "load_tfds_labelled",
    "load_tfds_pairs",
    "load_tfds_texts",
    "load_tsv",
    "load_vocabulary",
    "pair_batches",
    "parquet_documents",
    "read_idx",
    "recall_batch",
    "split_labelled",
    "text_documents",
    "tfds_documents",
    "train_vocabulary",
    "training_texts",
    "validation_batches",
    "window_batch",
    "write_shards",
]
