"""What decoding asks of its arguments, before anything is computed."""

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from attn_jax.decoding._start import reads_source
from attn_jax.nn._checks import check_optional_sizes, check_sizes
from attn_jax.ops._shapes import check_array, is_traced


def check_request(
    model: Any,
    prompt: Any,
    valid: Any,
    max_length: int,
    eos_id: Any,
    bos_id: Any,
    sampler: Any = None,
) -> None:
    """What every way of decoding asks for."""
    _check_model(model)
    check_sizes(max_length=max_length)
    vocab = model.config.vocab_size
    outputs = getattr(model.config, "output_width", vocab)
    if sampler is None and outputs != vocab:
        raise ValueError(
            f"model: got one that gives {outputs} numbers for each token; expected "
            f"logits of its {vocab} tokens; draw with sample(..., sampler=...) from "
            "the distribution that they stand for"
        )
    check_id("eos_id", eos_id, vocab)
    check_id("bos_id", bos_id, vocab)
    _check_prompt(prompt, valid, vocab)
    source = reads_source(model)
    if source and bos_id is None:
        raise ValueError(
            f"bos_id: got None for {type(model).__name__}; expected the id its targets "
            "begin with, since what it writes has no prompt to go on from"
        )
    counts = _counts(prompt, valid)
    if source or bos_id is None:
        _check_rows(counts, source)
    longest = 0 if source else int(counts.max())
    limit = model.config.max_length
    if longest + max_length > limit:
        before = f" after a prompt of {longest} tokens" if longest else ""
        raise ValueError(
            f"max_length: got {max_length}{before}; expected at most "
            f"{limit - longest}, so that both fit the model's max_length = {limit}; "
            "ask for fewer tokens, shorten the prompt, or build the model with a "
            "greater max_length"
        )


def check_id(name: str, value: Any, vocab: int) -> None:
    """A token of the vocabulary, or None."""
    if value is None:
        return
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < vocab:
        raise ValueError(
            f"{name}: got {value!r}; expected an int from 0 to {vocab - 1}, a token "
            f"of the model's vocabulary of {vocab}"
        )


def check_rng(rng: Any) -> None:
    """One typed key."""
    if not isinstance(rng, jax.Array) or not jnp.issubdtype(
        rng.dtype, jax.dtypes.prng_key
    ):
        kind = getattr(rng, "dtype", type(rng).__name__)
        raise TypeError(
            f"rng: got {kind}; expected a typed key; make one with jax.random.key(seed)"
        )
    if rng.ndim:
        raise ValueError(
            f"rng: got {rng.shape} keys; expected one; every row and token draws with "
            "a key of its own made from it"
        )


def check_choice(temperature: Any, top_k: int | None, top_p: Any, sampler: Any) -> None:
    """How a token is drawn."""
    if not _is_number(temperature) or not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature: got {temperature!r}; expected a finite number > 0, by which "
            "logits are divided; greedy(...) is its limit at 0"
        )
    check_optional_sizes(top_k=top_k)
    if top_p is not None and not (_is_number(top_p) and 0 < top_p <= 1):
        raise ValueError(
            f"top_p: got {top_p!r}; expected a number in (0, 1], the probability that "
            "the tokens kept have together; None keeps all"
        )
    if sampler is not None and (temperature, top_k, top_p) != (1, None, None):
        raise ValueError(
            f"sampler: got one with temperature = {temperature!r}, top_k = {top_k!r}, "
            f"top_p = {top_p!r}; expected none of them, which change logits; let the "
            "sampler do it"
        )


def length_penalties(alpha: float, max_length: int) -> Float[np.ndarray, " n"]:
    """What `beam_search` divides log p by: ((5 + n) / 6)^alpha, n = 1 .. max_length.

    Reference: Wu et al. 2016, equation 14, without its coverage penalty.

    Args:
      alpha: the exponent, of either sign.
      max_length: tokens of the longest text.

    Raises:
      ValueError: alpha is no finite number, or a penalty leaves the range of float32.
    """
    if not _is_number(alpha) or not math.isfinite(alpha):
        raise ValueError(
            f"alpha: got {alpha!r}; expected a finite number, the exponent of the "
            "length penalty ((5 + n) / 6)^alpha; 0 compares log-probabilities as they "
            "are, 0.6 is the 2017 paper's"
        )
    log_longest = math.log((5 + max_length) / 6)
    if abs(alpha) * log_longest > math.log(1e30):
        most = math.log(1e30) / log_longest
        raise ValueError(
            f"alpha: got {alpha!r}; expected a number from {-most:.1f} to {most:.1f} "
            f"for max_length = {max_length}; beyond, ((5 + n) / 6)^alpha leaves the "
            "range of float32"
        )
    return ((5 + np.arange(1.0, max_length + 1)) / 6) ** float(alpha)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(
        value, bool
    )


def _check_model(model: Any) -> None:
    if isinstance(model, type):
        raise TypeError(
            f"model: got the class {model.__name__}; expected a model; build one with "
            f"{model.__name__}(config, rngs=nnx.Rngs(0))"
        )
    missing = [n for n in ("init_cache", "decode", "take") if not hasattr(model, n)]
    if missing:
        raise TypeError(
            f"model: got {type(model).__name__}, which has no {', '.join(missing)}; "
            "expected a Decoder, an EncoderDecoder, or a module that decodes as they do"
        )


def _check_prompt(prompt: Any, valid: Any, vocab: int) -> None:
    check_array("prompt", prompt)
    if not jnp.issubdtype(prompt.dtype, jnp.integer):
        raise TypeError(
            f"prompt: got dtype {prompt.dtype}; expected integer ids, Int[b t]; cast "
            "whole numbers with prompt.astype(jnp.int32)"
        )
    if prompt.ndim != 2:
        raise ValueError(
            f"prompt: got shape {prompt.shape}; expected (b, t), rows of tokens; one "
            "row is prompt[None]"
        )
    if not prompt.shape[0]:
        raise ValueError(
            f"prompt: got shape {prompt.shape}; expected at least one row; leave out "
            "the call where there is nothing to write"
        )
    if valid is not None:
        check_array("valid", valid)
        if valid.dtype != bool:
            raise TypeError(
                f"valid: got dtype {valid.dtype}; expected Bool[b t], True = real "
                "token; compare first, e.g. jnp.arange(t) < lengths[:, None]"
            )
        if valid.shape != prompt.shape:
            raise ValueError(
                f"valid: got shape {valid.shape} for a prompt of shape {prompt.shape}; "
                "expected the same, one flag a token"
            )
    if is_traced(prompt, valid):
        return
    real = np.asarray(prompt)
    real = real if valid is None else real[np.asarray(valid)]
    if real.size:
        low, high = int(real.min()), int(real.max())
        if low < 0 or high >= vocab:
            raise ValueError(
                f"prompt: got ids from {low} to {high}; expected 0 to {vocab - 1} "
                "(vocab_size - 1); mark padding with valid, and it may hold anything"
            )


def _counts(prompt: Any, valid: Any) -> np.ndarray:
    """Real tokens of each row, as far as they are known."""
    if valid is None or is_traced(valid):
        return np.full(prompt.shape[:1], prompt.shape[1])
    return np.sum(np.asarray(valid), axis=1)


def _check_rows(counts: np.ndarray, source: bool) -> None:
    """Raise for a row without a token to go on from, or to translate."""
    if counts.all():
        return
    given = (
        "as source; leave out the rows that have nothing to read"
        if source
        else "to go on from; give bos_id, which then begins every row"
    )
    raise ValueError(
        f"prompt: row {int(np.argmin(counts))} has no token; expected at least one a "
        f"row, {given}"
    )
