"""Small models, and what is compiled once for many tests."""

import numpy as np
from flax import nnx

from attn_jax import models
from attn_jax.ops import masks
from tests.nn.cases import Compiled, filled, small

B, T, SHORT, LONGEST = 3, 7, 4, 11
VOCAB, M, H, G, D, E, F, LAYERS = 13, 10, 4, 2, 6, 5, 17, 2
SIZES = {
    "vocab_size": VOCAB,
    "max_length": LONGEST,
    "num_layers": LAYERS,
    "d_model": M,
    "num_heads": H,
    "num_kv_heads": G,
    "head_dim": D,
    "value_dim": E,
    "d_ff": F,
}
F32 = 2e-5  # ceiling of a relative error in float32
GARBAGE = np.array([-1, 10**6, VOCAB, -(2**31)])


def ids(seed, *shape):
    return np.random.default_rng(seed).integers(VOCAB, size=shape).astype(np.int32)


def config(name="softmax", **options):
    own = {"mechanism": small(name)}
    if options.get("positions") == "concatenated":
        own["tie_embeddings"] = False
    return models.DecoderConfig(**SIZES | own | options)


def decoder(name="softmax", seed=0, **options):
    """A decoder of these sizes with random numbers everywhere."""
    made = config(name, **options)
    return filled(lambda: models.Decoder(made, rngs=nnx.Rngs(0)), seed)


def encoder_decoder(seed=0, **options):
    """An encoder-decoder of these sizes, with random numbers everywhere."""
    made = models.EncoderDecoderConfig(**SIZES | options)
    return filled(lambda: models.EncoderDecoder(made, rngs=nnx.Rngs(0)), seed)


def encoder(seed=0, **options):
    """Likewise an encoder."""
    made = models.EncoderConfig(**SIZES | options)
    return filled(lambda: models.Encoder(made, rngs=nnx.Rngs(0)), seed)


def placed(rows, places, length=T):
    """Each row's tokens at its places in a longer row, and where they are.

    Between them stand ids that no vocabulary holds.
    """
    out = np.resize(GARBAGE, (len(rows), length)).astype(np.int32)
    real = np.zeros((len(rows), length), bool)
    for row, at in enumerate(places):
        out[row, at], real[row, at] = rows[row], True
    return out, real


class Model(Compiled):
    """A decoder on B rows, compiled for a batch of T tokens and one of SHORT."""

    def __init__(self, name="softmax", exclusive=False, **options):
        self.kind = type(small(name))
        super().__init__(decoder(name, exclusive=exclusive, use_bias=True, **options))
        self._full = self.jit(
            "full",
            lambda model, tokens, real, segments: model(
                tokens,
                mask=masks.padding(real, real) & masks.segments(segments),
            ),
        )
        self.plain = self.jit("plain", lambda model, tokens: model(tokens))
        self.decode = self.jit(
            "decode", lambda model, tokens, cache: model.decode(tokens, cache)
        )
        self.decode_ragged = self.jit(
            "decode_ragged",
            lambda model, tokens, cache, valid: model.decode(
                tokens, cache, valid=valid
            ),
        )

    def full(self, tokens, real=None, segments=None):
        """Logits of T tokens under padding and segments."""
        real = np.ones((B, T), bool) if real is None else real
        segments = np.zeros((B, T), np.int32) if segments is None else segments
        return self._full(tokens, real, segments)

    def init_cache(self):
        return self.module.init_cache(B, T)
