"""Weights of attention layers: PyTorch's and Flax's `MultiHeadAttention` and ours.

    attention = from_torch({n: x.numpy() for n, x in layer.state_dict().items()}, ...)
    attention = from_flax(nnx.to_pure_dict(nnx.state(layer, nnx.Param)))

    layer.load_state_dict({n: torch.tensor(x) for n, x in to_torch(attention).items()})
    nnx.update(layer, to_flax(attention))

Weights are plain arrays and are only turned and cut: what comes back is the same to the
bit, and parameters are of the weights' dtype. Neither library is imported for its
weights.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

from attn_jax.nn import Attention, AttentionConfig, Softmax

# What the two call our projections, and where those are.
PARTS = {
    "query": ("mechanism", "query_key", "query"),
    "key": ("mechanism", "query_key", "key"),
    "value": ("value",),
    "out": ("output",),
}
PROJECTIONS = ("query", "key", "value")
Parts = dict[str, dict[str, np.ndarray]]


def from_torch(
    weights: Mapping[str, Any], *, num_heads: int, **changes: Any
) -> Attention:
    """An `Attention` with the weights of a `torch.nn.MultiheadAttention`.

    in_proj_weight has the rows of queries, keys and values one after the other, each
    matrix as (out, in), with the heads inside `out`.

    Args:
      weights: its state_dict as arrays, or a part of one, without what stands before
        the names.
      num_heads: of the layer; no weight tells.
      changes: fields of `AttentionConfig` beside sizes and biases, which the weights
        say: `Attention` has no dropout of attention weights, but one of its output.

    Raises:
      TypeError: weights that are no mapping, such as the layer itself.
      ValueError: names or shapes of another kind of layer: one with bias_k and bias_v,
        or whose keys and values are wider or narrower than its queries.
    """
    _check_mapping(
        "weights", weights, "{n: x.numpy() for n, x in layer.state_dict().items()}"
    )
    found = {name: np.asarray(x) for name, x in weights.items()}
    biased = "in_proj_bias" in found
    joined = ["in_proj_weight", "out_proj.weight"]
    _check_names(found, joined + ["in_proj_bias", "out_proj.bias"] * biased, "PyTorch")
    m = found["out_proj.weight"].shape[0]
    _check_shapes(
        found,
        {
            "in_proj_weight": (3 * m, m),
            "out_proj.weight": (m, m),
            "in_proj_bias": (3 * m,),
            "out_proj.bias": (m,),
        },
    )
    config = _config(
        found["out_proj.weight"],
        d_model=m,
        num_heads=num_heads,
        use_bias=biased,
        **changes,
    )
    h, d = num_heads, config.key_dim
    kernels = np.split(found["in_proj_weight"], 3)
    parts: Parts = {
        name: {"kernel": kernel.T.reshape(m, h, d)}
        for name, kernel in zip(PROJECTIONS, kernels, strict=True)
    }
    parts["out"] = {"kernel": found["out_proj.weight"].T.reshape(h, d, m)}
    if biased:
        biases = np.split(found["in_proj_bias"], 3)
        for name, bias in zip(PROJECTIONS, biases, strict=True):
            parts[name]["bias"] = bias.reshape(h, d)
        parts["out"]["bias"] = found["out_proj.bias"]
    return _layer(config, parts)


def to_torch(attention: Attention) -> dict[str, np.ndarray]:
    """The state_dict, as arrays, of a `torch.nn.MultiheadAttention` like a layer.

    Raises:
      TypeError: something else than an `Attention`.
      ValueError: a layer that PyTorch's can't be like.
    """
    _check_layer(attention)
    config = attention.config
    m = config.d_model
    _check_plain(
        config,
        {
            "num_kv_heads": config.kv_heads == config.num_heads,
            "head_dim": config.key_dim * config.num_heads == m,
        },
    )
    parts = _parts(attention)
    kernels = [parts[name]["kernel"].reshape(m, m).T for name in PROJECTIONS]
    found = {
        "in_proj_weight": np.concatenate(kernels),
        "out_proj.weight": parts["out"]["kernel"].reshape(m, m).T,
    }
    if config.use_bias:
        biases = [parts[name]["bias"].reshape(m) for name in PROJECTIONS]
        found["in_proj_bias"] = np.concatenate(biases)
        found["out_proj.bias"] = parts["out"]["bias"]
    return found


def from_flax(params: Mapping[str, Any], **changes: Any) -> Attention:
    """An `Attention` with the parameters of a Flax `MultiHeadAttention`, NNX or Linen.

    Args:
      params: nested dicts of arrays: query, key, value and out, each with a kernel and
        perhaps a bias.
      changes: fields of `AttentionConfig` beside sizes and biases, which the parameters
        say.

    Raises:
      TypeError: parameters that are no mapping, such as the layer itself.
      ValueError: parameters of another kind of layer: one that normalises queries and
        keys (with a LayerNorm, where `Attention` has an RMSNorm), or whose output is
        wider or narrower than what it reads.
    """
    plain = "nnx.to_pure_dict(nnx.state(layer, nnx.Param))"
    _check_mapping("params", params, plain)
    _check_names(params, list(PARTS), "Flax")
    for name, part in params.items():
        _check_mapping(f"params[{name!r}]", part, plain)
    parts: Parts = {
        name: {leaf: np.asarray(x) for leaf, x in part.items()}
        for name, part in params.items()
    }
    kernel = parts["query"].get("kernel", np.zeros(()))
    if kernel.ndim != 3:
        raise ValueError(
            f"query.kernel: got shape {kernel.shape}; expected (d_model, heads, "
            "features of a head)"
        )
    m, h, d = kernel.shape
    g = np.shape(parts["key"].get("kernel", ()))[1:2]
    config = _config(
        kernel,
        d_model=m,
        num_heads=h,
        num_kv_heads=g[0] if g and g[0] != h else None,
        head_dim=None if h * d == m else d,
        use_bias="bias" in parts["query"],
        **changes,
    )
    return _layer(config, parts)


def to_flax(attention: Attention) -> dict[str, dict[str, np.ndarray]]:
    """The parameters of a Flax `MultiHeadAttention` like a layer, as nested dicts.

    Raises:
      TypeError: something else than an `Attention`.
      ValueError: a layer that Flax's can't be like.
    """
    _check_layer(attention)
    config = attention.config
    _check_plain(config, {"value_dim": config.values_dim == config.key_dim})
    return _parts(attention)


def _config(weight: np.ndarray, **options: Any) -> AttentionConfig:
    """A config whose parameters are of a weight's dtype, unless it says otherwise."""
    try:
        return AttentionConfig(**{"param_dtype": weight.dtype, **options})
    except TypeError as error:
        raise TypeError(
            f"changes: {error}; expected fields of AttentionConfig beside sizes and "
            "biases, which the weights say"
        ) from error


def _layer(config: AttentionConfig, parts: Parts) -> Attention:
    """The layer of a config with these projections and no other parameters."""
    for part in parts.values():
        for x in part.values():
            _check_exact(x, config)
    graph, state = nnx.split(
        nnx.eval_shape(lambda: Attention(config, rngs=nnx.Rngs(0)))
    )
    found = {
        (*PARTS[name], leaf): x
        for name, part in parts.items()
        for leaf, x in part.items()
    }
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(state))
    expected = {path: x.shape for path, x in params.items()}
    if {path: x.shape for path, x in found.items()} != expected:
        other = [
            f"{'.'.join(map(str, path))} of shape {shape}"
            for path, shape in expected.items()
            if path not in found or found[path].shape != shape
        ]
        other += [".".join(path) for path in found if path not in expected]
        raise ValueError(
            f"weights: got others than {', '.join(other[:4])}; expected the queries, "
            f"keys, values and outputs of a layer of {config.num_heads} heads and "
            f"width {config.d_model}, which is all that {config.mechanism} may have"
        )
    params = {path: jnp.asarray(x, config.param_dtype) for path, x in found.items()}
    nnx.replace_by_pure_dict(state, unflatten_dict(params))
    return nnx.merge(graph, state)


def _check_mapping(name: str, given: Any, plain: str) -> None:
    """Names and what they stand for, not the module that has them."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name}: got {type(given).__name__}; expected a mapping from names to "
            f"arrays; of a layer pass {plain}"
        )


def _check_layer(attention: Any) -> None:
    if not isinstance(attention, Attention):
        raise TypeError(
            f"attention: got {type(attention).__name__}; expected an Attention of "
            "attn_jax.nn; of a model pass one of its layers"
        )


def _check_exact(x: np.ndarray, config: AttentionConfig) -> None:
    """Raises where a weight would lose bits as a parameter."""
    dtype = jax.dtypes.canonicalize_dtype(config.param_dtype)
    if jnp.promote_types(x.dtype, dtype) != dtype:
        raise ValueError(
            f"weights: got dtype {x.dtype} for parameters of {dtype}; expected one "
            "that fits in it; cast the weights, or enable 64-bit types with "
            'jax.config.update("jax_enable_x64", True)'
        )


def _parts(attention: Attention) -> Parts:
    params: dict[Any, Any] = flatten_dict(nnx.to_pure_dict(nnx.state(attention)))
    leaves = ("kernel", "bias") if attention.config.use_bias else ("kernel",)
    return {
        name: {leaf: np.asarray(params[(*path, leaf)]) for leaf in leaves}
        for name, path in PARTS.items()
    }


def _check_plain(config: AttentionConfig, fits: Mapping[str, bool]) -> None:
    """Raises for a layer that computes what the other library's does not.

    Args:
      fits: what is asked for besides: field -> whether it is as it has to be.
    """
    mechanism = config.mechanism
    plain = {
        "mechanism": isinstance(mechanism, Softmax) and mechanism.logit_cap is None,
        **{
            name: not getattr(config, name)
            for name in ("exclusive", "rotary", "alibi", "qk_norm")
        },
        **fits,
    }
    wrong = [name for name, fitting in plain.items() if not fitting]
    if wrong:
        got = ", ".join(f"{name} = {getattr(config, name)!r}" for name in wrong)
        raise ValueError(
            f"attention: got {got}; expected plain softmax attention of the other "
            "library's widths; save_model of attn_jax.interop.model_files writes any "
            "model"
        )


def _check_names(found: Mapping[str, Any], expected: list[str], library: str) -> None:
    """Exactly these names."""
    lacking = [f"no {name}" for name in expected if name not in found]
    besides = [name for name in found if name not in expected]
    if lacking or besides:
        raise ValueError(
            f"weights: got {', '.join(lacking + besides)}; expected "
            f"{', '.join(expected)} of {library}'s MultiHeadAttention"
            + (", with or without biases" if library == "PyTorch" else "")
        )


def _check_shapes(
    found: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in expected.items():
        if name in found and found[name].shape != shape:
            raise ValueError(
                f"{name}: got shape {found[name].shape}; expected {shape}, as "
                "out_proj.weight says"
            )
