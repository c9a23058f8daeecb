"""AdamW and RAdam against their algorithms in float64, and who decays."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from attn_jax.train import adam, adamw, decay_mask, radam


class Layer(nnx.Module):
    """One of each kind of parameter, stacked or not."""

    def __init__(self, rngs):
        self.linear = nnx.Linear(3, 5, rngs=rngs)
        self.norm = nnx.LayerNorm(5, rngs=rngs)
        self.embed = nnx.Embed(7, 3, rngs=rngs)
        for name in ("random", "r1", "r2", "w1", "v1", "w2", "b1", "b2", "alpha"):
            setattr(self, name, nnx.Param(jnp.ones((2, 3))))


def by_name(mask):
    """Names of leaves that decay."""
    return {
        ".".join(map(str, path))
        for path, decays in nnx.to_flat_state(mask)
        if decays.get_value()
    }


@pytest.mark.parametrize("stacked", [False, True])
def test_names_decide_who_decays(stacked):
    def make(rngs):
        return Layer(rngs)

    if stacked:
        make = nnx.split_rngs(splits=4)(nnx.vmap(make))
    params = nnx.state(make(nnx.Rngs(0)), nnx.Param)
    plain = {"linear.kernel", "embed.embedding"}
    assert by_name(decay_mask(params)) == plain
    synthesizers = {"random", "r1", "r2", "w1", "v1", "w2"}
    assert by_name(decay_mask(params, synthesizers=True)) == plain | synthesizers


def test_the_mask_of_dicts_is_a_dict():
    params = {"layers": [{"kernel": jnp.ones(2), "bias": jnp.ones(2)}], "scale": 1.0}
    wanted = {"layers": [{"kernel": True, "bias": False}], "scale": False}
    assert decay_mask(params) == wanted


def oracle(params, gradients, rate, decays, clip):
    """AdamW by its algorithm, after clipping, in float64."""
    b1, b2, eps, decay = 0.9, 0.95, 1e-8, 0.1
    params = {k: v.astype(np.float64) for k, v in params.items()}
    m = {k: np.zeros_like(v) for k, v in params.items()}
    v = {k: np.zeros_like(v) for k, v in params.items()}
    for t, gradient in enumerate(gradients, 1):
        norm = np.sqrt(
            sum((g.astype(np.float64) ** 2).sum() for g in gradient.values())
        )
        for k in params:
            g = gradient[k] * min(1, clip / norm)
            m[k] = b1 * m[k] + (1 - b1) * g
            v[k] = b2 * v[k] + (1 - b2) * g**2
            step = (m[k] / (1 - b1**t)) / (np.sqrt(v[k] / (1 - b2**t)) + eps)
            params[k] -= rate * (step + decay * decays[k] * params[k])
    return params


def test_equals_the_algorithm():
    rng = np.random.default_rng(0)
    shapes = {"kernel": (3, 5), "bias": (5,), "w1": (2, 3)}
    params = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    # The norms of the gradients lie below and above the clip.
    gradients = [
        {k: (size * rng.normal(size=s)).astype(np.float32) for k, s in shapes.items()}
        for size in (0.01, 10.0, 0.1, 3.0)
    ]
    for decay_synthesizers in (False, True):
        decays = {"kernel": 1, "bias": 0, "w1": int(decay_synthesizers)}
        wanted = oracle(params, gradients, 0.1, decays, clip=1.0)
        optimizer = adamw(0.1, decay_synthesizers=decay_synthesizers)
        values = jax.tree.map(jnp.asarray, params)
        state = optimizer.init(values)
        for gradient in gradients:
            updates, state = optimizer.update(gradient, state, values)
            values = optax.apply_updates(values, updates)
        for k in shapes:
            np.testing.assert_allclose(values[k], wanted[k], rtol=2e-5, atol=1e-6)


def test_clipping_can_be_left_out():
    params = {"bias": jnp.zeros(2)}
    gradient = {"bias": jnp.array([30.0, 40.0])}
    moments = []
    for clip_norm in (5.0, None):
        optimizer = adamw(1.0, clip_norm=clip_norm)
        _, state = optimizer.update(gradient, optimizer.init(params), params)
        moments.append(optax.tree.get(state, "mu")["bias"])
    np.testing.assert_allclose(moments[0], [0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(moments[1], [3.0, 4.0], rtol=1e-6)


def test_a_clip_of_zero_is_refused():
    with pytest.raises(ValueError, match="clip_norm: got 0"):
        adamw(1e-3, clip_norm=0)


def test_adam_has_the_papers_numbers():
    """Two steps by the formulas of Kingma and Ba 2015, on numbers near eps."""
    optimizer, rate = adam(0.5), 0.5
    p = jnp.asarray([1.0, -2.0, 3.0])
    state, m, v, want = optimizer.init(p), 0.0, 0.0, np.asarray(p, np.float64)
    for t, g in enumerate(([1e-9, 2e-9, -1.0], [3e-9, 1e-9, 0.5]), start=1):
        g = np.asarray(g)
        update, state = optimizer.update(jnp.asarray(g, jnp.float32), state, p)
        p = p + update
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        root = np.sqrt(v / (1 - 0.98**t))
        want = want - rate * m / (1 - 0.9**t) / (root + 1e-9)
    np.testing.assert_allclose(p, want, rtol=1e-5)


def rectified(params, gradients, rate, decays, b2, decay):
    """RAdam by its algorithm, with the threshold of its authors' code, in float64."""
    params = {k: v.copy() for k, v in params.items()}
    m, v = ({k: np.zeros_like(p) for k, p in params.items()} for _ in range(2))
    most, sizes = 2 / (1 - b2) - 1, []
    for t, gradient in enumerate(gradients, 1):
        size = most - 2 * t * b2**t / (1 - b2**t)
        sizes.append(size)
        for k, g in gradient.items():
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = b2 * v[k] + (1 - b2) * g**2
            step = m[k] / (1 - 0.9**t)
            if size >= 5:
                above, below = (size - 4) * (size - 2) * most, (most - 4) * (most - 2)
                step *= np.sqrt(above / (below * size))
                step /= np.sqrt(v[k] / (1 - b2**t)) + 1e-8
            params[k] -= rate * (step + decay * decays[k] * params[k])
    return params, sizes


@pytest.mark.parametrize("b2", [0.999, 0.9])
def test_radam_equals_its_algorithm(b2):
    """Momentum first, then rectified steps, of which b2 = 0.9 brings r near to 1."""
    rng = np.random.default_rng(1)
    shapes = {"kernel": (3, 5), "bias": (5,), "w1": (2, 3)}
    params = {k: rng.normal(size=s) for k, s in shapes.items()}
    gradients = [{k: rng.normal(size=s) for k, s in shapes.items()} for _ in range(30)]
    with jax.enable_x64(True):
        for decay_synthesizers in (False, True):
            decays = {"kernel": 1, "bias": 0, "w1": int(decay_synthesizers)}
            wanted, sizes = rectified(params, gradients, 0.1, decays, b2, 0.3)
            assert min(sizes) < 5 < max(sizes)
            optimizer = radam(
                0.1, b2=b2, weight_decay=0.3, decay_synthesizers=decay_synthesizers
            )
            values = jax.tree.map(jnp.asarray, params)
            state = optimizer.init(values)
            update = jax.jit(optimizer.update)
            for gradient in gradients:
                updates, state = update(gradient, state, values)
                values = optax.apply_updates(values, updates)
            for k in shapes:
                np.testing.assert_allclose(values[k], wanted[k], rtol=1e-9)


def test_radam_follows_a_schedule_of_updates_done():
    """The rate of the first update is that of 0 updates."""
    schedule = optax.piecewise_constant_schedule(1.0, {2: 0.1})
    optimizer, p = radam(schedule, weight_decay=0.0), jnp.zeros(())
    state, taken = optimizer.init(p), []
    for _ in range(4):
        update, state = optimizer.update(jnp.ones(()), state, p)
        taken.append(float(update))
    np.testing.assert_allclose(taken, [-1, -1, -0.1, -0.1], rtol=1e-5)
