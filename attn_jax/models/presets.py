"""Named configs."""

from attn_jax.models.config import DecoderConfig, StackConfig
from attn_jax.nn._table import Table

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
    },
)
