"""Named configs."""

from dataclasses import replace
from typing import Any

from attn_jax.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    StackConfig,
)
from attn_jax.nn._table import Table

# Vaswani et al. 2017, table 3, row "base": 65 million parameters by the paper's count.
BASE = EncoderDecoderConfig(
    vocab_size=37000,
    max_length=512,
    num_layers=6,
    d_model=512,
    num_heads=8,
    d_ff=2048,
    dropout_rate=0.1,
)

# The rows of table 3 that change the model. Two rows of (D) change label smoothing, an
# argument of `attn_jax.train.cross_entropy`, and no config.
TABLE3 = {
    "heads-1": {"num_heads": 1},
    "heads-4": {"num_heads": 4},
    "heads-16": {"num_heads": 16},
    "heads-32": {"num_heads": 32},
    "key-16": {"head_dim": 16, "value_dim": 64},
    "key-32": {"head_dim": 32, "value_dim": 64},
    "layers-2": {"num_layers": 2},
    "layers-4": {"num_layers": 4},
    "layers-8": {"num_layers": 8},
    "width-256": {"d_model": 256, "head_dim": 32},
    "width-1024": {"d_model": 1024, "head_dim": 128},
    "ff-1024": {"d_ff": 1024},
    "ff-4096": {"d_ff": 4096},
    "dropout-0.0": {"dropout_rate": 0.0},
    "dropout-0.2": {"dropout_rate": 0.2},
    "learned-positions": {"positions": "learned"},
}

# Zhai 2026, table 1: nanoGPT with rotary positions, a norm after the embeddings and
# heads whose width is not d_model / num_heads. The last three are ours, of that shape.
XSA = {
    "xsa-0.7b": {"num_layers": 24, "d_model": 1536, "num_heads": 6, "head_dim": 256},
    "xsa-1.4b": {"num_layers": 24, "d_model": 2048, "num_heads": 24, "head_dim": 128},
    "xsa-2.7b": {"num_layers": 32, "d_model": 2560, "num_heads": 24, "head_dim": 128},
    "xsa-1m": {"num_layers": 4, "d_model": 128, "num_heads": 6, "head_dim": 32},
    "xsa-10m": {"num_layers": 7, "d_model": 320, "num_heads": 10, "head_dim": 48},
    "xsa-30m": {"num_layers": 8, "d_model": 512, "num_heads": 12, "head_dim": 64},
}


def _xsa(sizes: dict[str, Any], *, exclusive: bool) -> DecoderConfig:
    return DecoderConfig(
        vocab_size=50304,
        max_length=2048,
        exclusive=exclusive,
        embedding_norm=True,
        init_std=0.02,
        activation="gelu_exact",
        **sizes,
    )


presets: Table[StackConfig] = Table(
    "preset",
    {
        # The byte-level model of experiments/compare.
        "bytes-tiny": DecoderConfig(
            vocab_size=256, max_length=256, num_layers=2, d_model=128, num_heads=4
        ),
        "bytes-small": DecoderConfig(
            vocab_size=256, max_length=512, num_layers=6, d_model=384, num_heads=6
        ),
        # The sizes of the GPT-2 family, with this library's defaults.
        "gpt2-small": DecoderConfig(
            vocab_size=50304,
            max_length=1024,
            num_layers=12,
            d_model=768,
            num_heads=12,
            positions="learned",
        ),
        "transformer-base": BASE,
        "transformer-big": replace(
            BASE, d_model=1024, num_heads=16, d_ff=4096, dropout_rate=0.3
        ),
        **{
            f"transformer-table3-{row}": replace(BASE, **changes)
            for row, changes in TABLE3.items()
        },
        **{name: _xsa(sizes, exclusive=True) for name, sizes in XSA.items()},
        **{
            f"{name}-baseline": _xsa(sizes, exclusive=False)
            for name, sizes in XSA.items()
        },
        # Devlin et al. 2019, base, uncased: the encoder and its pooler.
        "bert-base": EncoderConfig(
            vocab_size=30522,
            max_length=512,
            num_layers=12,
            d_model=768,
            num_heads=12,
            positions="learned",
            num_types=2,
            embedding_norm=True,
            pooling="first",
            dropout_rate=0.1,
            use_bias=True,
            norm_placement="post",
            norm_epsilon=1e-12,
            activation="gelu_exact",
        ),
    },
)
