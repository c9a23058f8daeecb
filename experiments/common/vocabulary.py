"""Subword vocabularies that experiments learn from their own text."""

from collections.abc import Iterable

from attn_jax.data import Vocabulary, train_vocabulary
from experiments.common.errors import UserError


def learn_vocabulary(texts: Iterable[str], size: int) -> Vocabulary:
    """As many pieces as --vocab-size says, learnt from texts.

    Raises:
      UserError: a size that they don't give.
    """
    try:
        return train_vocabulary(texts, size)
    except ValueError as error:
        # What is called size there is --vocab-size here.
        raise UserError(f"--vocab-{error}") from error
