"""The models by their names: decoders that differ in their attention alone."""

from attn_jax.models import DecoderConfig
from attn_jax.nn import Mechanism
from experiments.common.lsh import named_mechanism
from experiments.linear_copy.config import CopyConfig


def mechanism(name: str, config: CopyConfig) -> Mechanism:
    """The attention of a model."""
    return named_mechanism(name, config.bucket_size)


def decoder_config(attention: Mechanism, config: CopyConfig) -> DecoderConfig:
    """A decoder at the sizes of a config."""
    return DecoderConfig(
        vocab_size=config.num_symbols + 1,
        max_length=config.length,
        num_layers=config.num_layers,
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        mechanism=attention,
        positions=config.positions,
        norm_placement=config.norm_placement,
        dropout_rate=config.dropout_rate,
        final_norm=True,
        activation="relu",
        use_bias=True,
        tie_embeddings=False,
        # Embeddings of deviation 1, which are not small beside sines and cosines.
        embedding_scale="sqrt",
        # A few layers run faster unrolled.
        scan_layers=False,
    )
