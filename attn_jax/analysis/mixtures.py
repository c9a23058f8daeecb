"""What a model's mixtures weigh: their alphas, by layer, head and member."""

from typing import NamedTuple

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn import MECHANISMS, Mechanism
from attn_jax.nn.mixture import MixtureCore

_WITHIN = frozenset({"blocks", "attention", "mechanism"})


class MixtureWeights(NamedTuple):
    """The alphas of the layers of a stack.

    members: what is mixed, by its name in the mechanism table; a second one of a kind
        is called "softmax_2".
    alphas: the weights of the members in each head of each layer.
    """

    members: tuple[str, ...]
    alphas: Float[Array, "layers h k"]


def mixture_weights(model: nnx.Module) -> dict[str, MixtureWeights]:
    """The learnt alphas of a model or a layer, of each stack that has mixtures.

        alphas[l, h, k] = softmax_k(alpha_lh),   or the σ pair, as the mixture says

    Args:
      model: with its trained parameters, `nnx.merge(graph, state.params)`.

    Returns:
      {name of the stack: its weights}: "stack" of a Decoder, "encoder" and "decoder" of
      an EncoderDecoder, "" of an `Attention`. A plain sum has nothing learnt and isn't
      listed, and a model without mixtures gives {}.
    """
    found: dict[str, list[MixtureCore]] = {}
    for path, module in nnx.iter_modules(model):
        if isinstance(module, MixtureCore) and module.alpha is not None:
            found.setdefault(_stack(path), []).append(module)
    return {name: _weights(cores) for name, cores in found.items()}


def mixture_metrics(model: nnx.Module) -> dict[str, float]:
    """The mean alpha of each member over layers and heads, for a line of metrics.

    Args:
      model: as in `mixture_weights`.

    Returns:
      {"alpha/stack/random": 0.4, "alpha/stack/softmax": 0.6}, or {} without mixtures.
    """
    return {
        "/".join(filter(None, ("alpha", name, member))): float(mean)
        for name, weights in mixture_weights(model).items()
        for member, mean in zip(
            weights.members, jnp.mean(weights.alphas, axis=(0, 1)), strict=True
        )
    }


def _stack(path: tuple) -> str:
    """Where a mixture stands, without its layer."""
    words = [str(word) for word in path]
    layers = {i + 1 for i, word in enumerate(words) if word == "blocks"}
    return "/".join(
        word
        for i, word in enumerate(words)
        if word not in _WITHIN and not (i in layers and word.isdigit())
    )


def _weights(cores: list[MixtureCore]) -> MixtureWeights:
    """Those of one core with stacked layers, or of one core a layer."""
    alphas = [core.alphas() for core in cores]
    alphas = [a.reshape(-1, *a.shape[-2:]) for a in alphas]
    return MixtureWeights(
        _names(cores[0].mechanism.members), jnp.concatenate(alphas, axis=0)
    )


def _names(members: tuple[Mechanism, ...]) -> tuple[str, ...]:
    """Their names in the table, numbered from the second of a kind on."""
    names = {kind: name for name, kind in MECHANISMS.items()}
    plain = [names.get(type(m), type(m).__name__) for m in members]
    counts = [plain[: i + 1].count(name) for i, name in enumerate(plain)]
    return tuple(
        name if n == 1 else f"{name}_{n}" for name, n in zip(plain, counts, strict=True)
    )
