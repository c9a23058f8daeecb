"""Small models with a cache, and what they say computed token by token in NumPy."""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

WIDTH = 5


class Config(NamedTuple):
    vocab_size: int
    max_length: int


class Cache(NamedTuple):
    state: object  # b m
    length: object  # b


class Recurrent(nnx.Module):
    """state <- tanh(state A + B[token]); logits = state C: all of the past counts.

    Logits are NaN after more than `poison` tokens.
    """

    def __init__(self, vocab, max_length=20, seed=0, scale=2.0, poison=None):
        rng = np.random.default_rng(seed)
        self.config = Config(vocab, max_length)
        self.poison = poison
        self.a = nnx.Param(jnp.asarray(rng.normal(size=(WIDTH, WIDTH)), jnp.float32))
        self.b = nnx.Param(jnp.asarray(rng.normal(size=(vocab, WIDTH)), jnp.float32))
        c = scale * rng.normal(size=(WIDTH, vocab))
        self.c = nnx.Param(jnp.asarray(c, jnp.float32))

    def init_cache(self, batch, length):
        state = jnp.zeros((batch, WIDTH), self.a[...].dtype)
        return Cache(state, jnp.zeros((batch,), jnp.int32))

    def decode(self, tokens, cache, *, valid=None):
        outs, (state, length) = [], cache
        for i in range(tokens.shape[1]):
            new = jnp.tanh(state @ self.a[...] + self.b[...][tokens[:, i]])
            real = jnp.ones(new.shape[:1], bool) if valid is None else valid[:, i]
            state = jnp.where(real[:, None], new, state)
            length = length + real
            outs.append(state @ self.c[...])
        logits = jnp.stack(outs, axis=1)
        if self.poison is not None:
            bad = length > self.poison
            logits = jnp.where(bad[:, None, None], jnp.nan, logits)
        return logits, Cache(state, length)

    def take(self, cache, rows):
        return Cache(cache.state[rows], cache.length[rows])


class Translator(Recurrent):
    """The state begins with the mean of the source's embeddings."""

    def encode(self, source, *, mask=None):
        if mask is None:
            real = jnp.ones(source.shape, bool)
        else:
            s = source.shape[1]
            real = jnp.any(mask.allowed(s, s)[:, 0], axis=1)
        x = jnp.where(real[..., None], self.b[...][jnp.where(real, source, 0)], 0)
        return jnp.concatenate([x, real[..., None]], axis=-1)

    def init_cache(self, memory, length, *, memory_mask=None):
        mean = memory[..., :-1].sum(1) / memory[..., -1:].sum(1)
        return Cache(mean, jnp.zeros(len(memory), jnp.int32))


class Fixed(nnx.Module):
    """The same logits after every token, or those of the step."""

    def __init__(self, logits, max_length=20):
        table = jnp.atleast_2d(jnp.asarray(logits, jnp.float32))
        self.table = nnx.Param(table)
        self.config = Config(table.shape[1], max_length)

    def init_cache(self, batch, length):
        return jnp.zeros((batch,), jnp.int32)

    def decode(self, tokens, cache, *, valid=None):
        real = jnp.ones(tokens.shape, bool) if valid is None else valid
        at = cache[:, None] + jnp.cumsum(real, axis=1) - 1
        last = self.table[...].shape[0] - 1
        cache = cache + jnp.sum(real, axis=1, dtype=jnp.int32)
        return self.table[...][jnp.clip(at, 0, last)], cache

    def take(self, cache, rows):
        return cache[rows]


def log_probabilities(model, prompt):
    """tokens -> log p(next token | prompt, tokens), in float64."""
    a, b, c = (np.asarray(p[...], np.float64) for p in (model.a, model.b, model.c))

    def after(tokens):
        state = np.zeros(WIDTH)
        if isinstance(model, Translator):
            state = b[prompt[:-1]].mean(0)
            tokens = (prompt[-1], *tokens)
        else:
            tokens = (*prompt, *tokens)
        for token in tokens:
            state = np.tanh(state @ a + b[token])
        logits = state @ c
        top = logits.max()
        return logits - top - np.log(np.exp(logits - top).sum())

    return after


def penalty(n, alpha):
    return ((5 + n) / 6) ** alpha


def exhaustive(after, vocab, eos, alpha, length):
    """Every text of at most `length` tokens that ends: (score, tokens), best first."""
    found = []
    others = [token for token in range(vocab) if token != eos]
    for n in range(1, length + 1):
        for body in itertools.product(others, repeat=n - 1):
            text = (*body, eos)
            total = sum(after(text[:i])[text[i]] for i in range(n))
            found.append((total / penalty(n, alpha), text))
    return sorted(found, reverse=True)


def slow_beam(after, k, eos, alpha, length):
    """Beam search that never stops early: (score, tokens), best first."""
    live, finished = [(0.0, ())], []
    for n in range(1, length + 1):
        grown = sorted(
            (
                (total + step, (*text, token))
                for total, text in live
                for token, step in enumerate(after(text))
            ),
            reverse=True,
        )
        finished += [
            (total / penalty(n, alpha), text)
            for total, text in grown[:k]
            if text[-1] == eos
        ]
        live = [(total, text) for total, text in grown if text[-1] != eos][:k]
        if k == 1 and finished:
            break
    if finished:
        return sorted(finished, reverse=True)[:k]
    return [(total / penalty(length, alpha), text) for total, text in live]


def padded(found, k, length):
    """Scores and tokens as beam_search returns them."""
    scores, tokens = np.full(k, -np.inf), np.zeros((k, length), int)
    for i, (score, text) in enumerate(found[:k]):
        scores[i], tokens[i, : len(text)] = score, text
    return scores, tokens
