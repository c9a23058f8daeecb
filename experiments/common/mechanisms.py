"""Mechanisms by the names that a command line or a table calls them."""

from collections.abc import Callable

from attn_jax.nn import MECHANISMS, Mechanism, MixtureSynthesizer, RandomSynthesizer
from attn_jax.nn._table import Table

# The paper doesn't say how its fixed matrices are drawn: of a small deviation, each is
# nearly the mean of all tokens; of deviation 1, a pattern of its own.
FIXED: dict[str, Callable[[], Mechanism]] = {
    "fixed_random": lambda: RandomSynthesizer(trainable=False),
    "fixed_random_wide": lambda: RandomSynthesizer(trainable=False, init_std=1.0),
}
_NAMED = Table("mechanism", {**MECHANISMS, **FIXED})


def mechanism_named(name: str) -> Mechanism:
    """The mechanism of a name: of the table, a fixed one, or a mixture of several.

    >>> [type(member).__name__ for member in mechanism_named("random+softmax").members]
    ['RandomSynthesizer', 'Softmax']

    Raises:
      KeyError: a part is no name; the message has the nearest.
      ValueError: a part that has no logits to mix.
    """
    members = tuple(_NAMED[part]() for part in name.split("+"))
    return members[0] if len(members) == 1 else MixtureSynthesizer(members=members)
