"""The rows of the table: a feature map, and what stands in for a normaliser."""

from dataclasses import replace
from typing import NamedTuple

from attn_jax.models import DecoderConfig, count_parameters
from attn_jax.nn import Linear
from attn_jax.ops import (
    elu_plus_one,
    exp_features,
    polynomial_features,
    relu_features,
    squared_relu_features,
)
from experiments.compare import rows as compare
from experiments.compare.config import CompareConfig
from experiments.feature_maps.config import FeatureMapsConfig
from experiments.linear_copy.config import CopyConfig
from experiments.linear_copy.models import decoder_config

FUNCTIONS = {
    "elu": elu_plus_one,
    "relu": relu_features,
    "squared_relu": squared_relu_features,
    "exp": exp_features,
    "polynomial": polynomial_features,
}


class Row(NamedTuple):
    """One kind of linear attention.

    name: the map's, with +norm where a norm takes the place of the normaliser.
    """

    name: str
    mechanism: Linear

    def copy_decoder(self, config: CopyConfig) -> DecoderConfig:
        """The copy task's model."""
        return decoder_config(self.mechanism, config)

    def text_row(self, config: CompareConfig) -> compare.Row:
        """The text's model, which is the demo's but for its attention."""
        (linear,) = compare.make_rows(replace(config, mechanisms=("linear",)))
        decoder = replace(linear.decoder, mechanism=self.mechanism)
        return compare.Row(self.name, decoder, count_parameters(decoder))


def make_rows(config: FeatureMapsConfig) -> list[Row]:
    """Each map with a normaliser, then with a norm."""
    return [
        Row(
            name if normalize else f"{name}+norm",
            Linear(feature_map=FUNCTIONS[name], normalize=normalize),
        )
        for name in config.maps
        for normalize in (True, False)
    ]
