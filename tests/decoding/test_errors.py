"""What can't be honoured raises before anything is computed, and says what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attn_jax.decoding import beam_search, greedy, sample
from tests.decoding import toys
from tests.models.cases import LONGEST, VOCAB, decoder, ids

PROMPT = jnp.asarray(ids(0, 2, 3))
BEAM = {"beam_size": 2, "alpha": 0.6, "eos_id": 1}
DRAW = {"rng": jax.random.key(0)}


class Untouched(toys.Recurrent):
    """Nothing may be computed."""

    def decode(self, *args, **kwargs):
        raise AssertionError("decoded before the check")

    init_cache = decode


CASES = [
    (beam_search, {"beam_size": 0}, ValueError, "beam_size: got 0; expected an int >="),
    (beam_search, {"beam_size": 2.0}, ValueError, "beam_size: got 2.0"),
    (beam_search, {"alpha": np.nan}, ValueError, "alpha: got nan; expected a finite"),
    (beam_search, {"alpha": -np.inf}, ValueError, "alpha: got -inf"),
    (beam_search, {"alpha": "0.6"}, ValueError, "alpha: got '0.6'"),
    (beam_search, {"alpha": 1e4}, ValueError, "alpha: got 10000.0; .*range of float32"),
    (beam_search, {"eos_id": None}, ValueError, "eos_id: got None; expected the id"),
    (beam_search, {"eos_id": VOCAB}, ValueError, "eos_id: got 13; .* 0 to 12"),
    (greedy, {"eos_id": -1}, ValueError, "eos_id: got -1; .* 0 to 12"),
    (greedy, {"eos_id": True}, ValueError, "eos_id: got True"),
    (greedy, {"eos_id": 1.0}, ValueError, "eos_id: got 1.0"),
    (greedy, {"bos_id": 99}, ValueError, "bos_id: got 99; .* 0 to 12"),
    (greedy, {"max_length": 0}, ValueError, "max_length: got 0; expected an int >= 1"),
    (
        greedy,
        {"max_length": 9},
        ValueError,
        "max_length: got 9 after a prompt of 3 .*8",
    ),
    (greedy, {"max_length": None}, ValueError, "max_length: got None; expected an int"),
    (beam_search, {"beam_size": None}, ValueError, "beam_size: got None; expected an"),
    (greedy, {"prompt": PROMPT[:0]}, ValueError, r"prompt: got shape \(0, 3\); .*row"),
    (beam_search, {"prompt": PROMPT[:0]}, ValueError, r"prompt: got shape \(0, 3\)"),
    (sample, {"prompt": PROMPT[:0]}, ValueError, r"prompt: got shape \(0, 3\)"),
    (sample, {"temperature": 0}, ValueError, "temperature: got 0; .* greedy"),
    (sample, {"temperature": np.inf}, ValueError, "temperature: got inf"),
    (sample, {"temperature": np.nan}, ValueError, "temperature: got nan"),
    (sample, {"top_k": 0}, ValueError, "top_k: got 0; expected an int >= 1"),
    (sample, {"top_p": 0.0}, ValueError, r"top_p: got 0.0; expected .* \(0, 1\]"),
    (sample, {"top_p": 1.5}, ValueError, "top_p: got 1.5"),
    (
        sample,
        {"rng": jax.random.PRNGKey(0)},
        TypeError,
        "rng: got uint32; .*random.key",
    ),
    (sample, {"rng": 0}, TypeError, "rng: got int; expected a typed key"),
    (
        sample,
        {"rng": jax.random.split(jax.random.key(0))},
        ValueError,
        r"rng: got \(2,",
    ),
    (
        sample,
        {"sampler": jax.random.categorical, "temperature": 0.5},
        ValueError,
        "sampler: got one with temperature = 0.5, top_k = None",
    ),
    (
        sample,
        {"sampler": jax.random.categorical, "top_k": 3},
        ValueError,
        "sampler: .*top_k = 3.*expected none",
    ),
    (greedy, {"prompt": PROMPT[0]}, ValueError, r"prompt: got shape \(3,\); .*b, t"),
    (greedy, {"prompt": [[1]]}, TypeError, "prompt: got list; expected an array"),
    (greedy, {"prompt": PROMPT * 1.0}, TypeError, "prompt: got dtype float32"),
    (greedy, {"prompt": PROMPT + VOCAB}, ValueError, "prompt: got ids from .*0 to 12"),
    (greedy, {"prompt": PROMPT[:, :0]}, ValueError, "prompt: row 0 has no token"),
    (greedy, {"valid": PROMPT}, TypeError, "valid: got dtype int32; expected Bool"),
    (greedy, {"valid": PROMPT[:1] > 0}, ValueError, r"valid: got shape \(1, 3\)"),
    (
        greedy,
        {"valid": jnp.array([[True] * 3, [False] * 3])},
        ValueError,
        "prompt: row 1 has no token; .* give bos_id",
    ),
]


NAMES = [
    f"{case[0].__name__}-{next(iter(case[1]))}-{i}" for i, case in enumerate(CASES)
]


@pytest.mark.parametrize(("function", "options", "kind", "says"), CASES, ids=NAMES)
def test_bad_input_is_refused(function, options, kind, says, plain_errors):
    model = Untouched(VOCAB, LONGEST)
    given = {"prompt": PROMPT, "max_length": 4}
    given |= {beam_search: BEAM, sample: DRAW, greedy: {}}[function] | options
    with pytest.raises(kind, match=says):
        function(model, given.pop("prompt"), **given)


def test_a_source_needs_bos_id(plain_errors):
    model = toys.Translator(VOCAB, LONGEST)
    with pytest.raises(ValueError, match="bos_id: got None for Translator"):
        greedy(model, PROMPT, max_length=4)
    with pytest.raises(ValueError, match="max_length: got 12; expected at most 11"):
        greedy(model, PROMPT, max_length=12, bos_id=0)


def test_a_source_needs_a_token_a_row(plain_errors):
    """bos_id begins the target, and stands in for no token of the source."""
    model = toys.Translator(VOCAB, LONGEST)
    valid = jnp.array([[True] * 3, [False] * 3])
    with pytest.raises(ValueError, match=r"prompt: row 1 has no token; .* as source"):
        greedy(model, PROMPT, max_length=4, bos_id=0, valid=valid)
    with pytest.raises(ValueError, match="prompt: row 0 has no token"):
        beam_search(model, PROMPT[:, :0], max_length=4, bos_id=0, **BEAM)


def test_a_class_is_no_model(plain_errors):
    with pytest.raises(TypeError, match="got the class Translator; expected a model"):
        greedy(toys.Translator, PROMPT, max_length=4, bos_id=0)


def test_a_model_without_a_cache_is_refused(plain_errors):
    with pytest.raises(TypeError, match="model: got int, which has no init_cache, dec"):
        greedy(3, PROMPT, max_length=4)


def test_padding_counts_neither_as_id_nor_as_length(plain_errors):
    """10 columns of which 3 are real leave room for 8 tokens in a model of 11."""
    prompt = jnp.full((2, 10), 10**6).at[:, 4:7].set(PROMPT)
    valid = jnp.zeros((2, 10), bool).at[:, 4:7].set(True)
    tokens = greedy(decoder(), prompt, max_length=8, valid=valid)
    assert tokens.shape == (2, 8)
    with pytest.raises(ValueError, match="max_length: got 9 after a prompt of 3"):
        greedy(decoder(), prompt, max_length=9, valid=valid)
