"""The training step: one gradient however it is accumulated, and steps left out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attn_jax.train import init_train_state, make_train_step, noam_schedule
from tests.train import toy
from tests.train.toy import assert_same_bits


def poisoned(step):
    """A batch whose inputs are NaN."""
    inputs, labels, weights = toy.batch_at(step)
    return np.full_like(inputs, np.nan), labels, weights


def test_one_step_is_gradient_of_the_mean_and_update():
    optimizer = optax.sgd(0.5)
    params = toy.make_params()
    state = init_train_state(params, optimizer, seed=0)
    step = make_train_step(toy.loss_without_dropout, optimizer, schedule=0.5)
    batch = toy.batch_at(0)

    def mean(params):
        total, weight = toy.loss_fn(params, batch, None)
        return total / weight

    loss, gradient = jax.value_and_grad(mean)(params)
    state, metrics = step(state, batch)
    for new, old, slope in zip(
        *map(jax.tree.leaves, (state.params, params, gradient)), strict=True
    ):
        np.testing.assert_allclose(new, old - 0.5 * slope, rtol=1e-5, atol=1e-6)
    norms = {
        name: np.sqrt(sum((np.asarray(x) ** 2).sum() for x in jax.tree.leaves(tree)))
        for name, tree in (("gradient", gradient), ("parameter", params))
    }
    np.testing.assert_allclose(metrics.loss, loss, rtol=1e-6)
    np.testing.assert_allclose(metrics.weight, batch[2].sum())
    np.testing.assert_allclose(metrics.gradient_norm, norms["gradient"], rtol=1e-5)
    np.testing.assert_allclose(metrics.parameter_norm, norms["parameter"], rtol=1e-6)
    np.testing.assert_allclose(metrics.update_norm, norms["gradient"] / 2, rtol=1e-5)
    assert metrics.learning_rate == 0.5
    assert state.step == 1
    assert not metrics.skipped


def test_accumulation_equals_the_large_batch():
    optimizer = optax.sgd(1.0)
    results = []
    for accumulation in (1, 2, 4, 8):
        state = init_train_state(toy.make_params(), optimizer, seed=0)
        step = make_train_step(
            toy.loss_without_dropout, optimizer, accumulation=accumulation
        )
        batch = toy.batch_at(3)
        # Uneven to the utmost: one micro-batch of four holds no weight at all.
        batch[2][1::4] = 0
        results.append(step(state, batch))
    state, metrics = results[0]
    for other_state, other_metrics in results[1:]:
        for x, y in zip(
            jax.tree.leaves((other_state.params, other_metrics[:5])),
            jax.tree.leaves((state.params, metrics[:5])),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_rng_is_a_function_of_seed_step_and_micro_batch(accumulation):
    optimizer = optax.sgd(1.0)

    def loss_fn(params, batch, rng):
        # The gradient of w is what the key draws, once for each row.
        return jnp.sum(batch * jax.random.uniform(rng)) * params["w"], jnp.ones(())

    step = make_train_step(loss_fn, optimizer, accumulation=accumulation)
    rows = np.arange(8.0, dtype=np.float32)
    for seed, at in ((0, 0), (0, 7), (3, 7)):
        state = init_train_state({"w": jnp.zeros(())}, optimizer, seed=seed)
        state, _ = step(state._replace(step=jnp.int32(at)), rows)
        key = jax.random.fold_in(jax.random.key(seed), at)
        wanted = sum(
            rows[i::accumulation].sum() * jax.random.uniform(jax.random.fold_in(key, i))
            for i in range(accumulation)
        )
        wanted = -wanted / accumulation
        np.testing.assert_allclose(state.params["w"], wanted, rtol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_rate_of_update_u_is_that_of_the_formula(accumulation):
    schedule = noam_schedule(16, 3)
    optimizer = optax.sgd(schedule)

    def loss_fn(params, batch, rng):
        del rng
        return jnp.sum(batch) * params["w"], jnp.sum(jnp.ones_like(batch))

    step = make_train_step(
        loss_fn, optimizer, schedule=schedule, accumulation=accumulation
    )
    state = init_train_state({"w": jnp.zeros(())}, optimizer, seed=0)
    ones, updates = np.ones(4, np.float32), 0
    for batch in (ones, ones, ones * np.nan, ones, ones):
        state, metrics = step(state, batch)
        s = updates + 1
        rate = 16**-0.5 * min(s**-0.5, s * 3**-1.5)
        np.testing.assert_allclose(metrics.learning_rate, rate, rtol=1e-6)
        if np.isfinite(batch).all():
            # The gradient is 1, so the update is the rate that was used.
            np.testing.assert_allclose(metrics.update_norm, rate, rtol=1e-6)
            updates += 1
    assert state.step == 5
    assert updates == 4


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_that_is_not_finite_changes_nothing_but_the_counts(accumulation):
    state, step = toy.make_run(accumulation=accumulation)
    state, _ = step(state, toy.batch_at(0))
    before = jax.tree.map(lambda x: x.copy(), state)
    for count in (1, 2):
        state, metrics = step(state, poisoned(count))
        assert metrics.skipped
        assert metrics.consecutive_skips == metrics.total_skips == count
    assert_same_bits(state.params, before.params)
    assert_same_bits(state.opt_state, before.opt_state)
    assert_same_bits(state.seed, before.seed)
    assert state.step == 3
    state, metrics = step(state, toy.batch_at(3))
    assert not metrics.skipped
    assert (metrics.consecutive_skips, metrics.total_skips) == (0, 2)


@pytest.mark.parametrize("where", ["loss", "gradient", "update"])
def test_each_of_loss_gradient_and_update_is_looked_at(where):
    def loss_fn(params, batch, rng):
        del rng
        # √0 is finite and its slope is not.
        w = jnp.sqrt(params["w"]) if where == "gradient" else params["w"]
        return jnp.inf if where == "loss" else w * batch, jnp.ones(())

    # Without an update that shows it, a gradient has to be seen by itself.
    optimizer = {
        "loss": optax.sgd(1.0),
        "gradient": optax.set_to_zero(),
        "update": optax.sgd(jnp.inf),
    }[where]
    state = init_train_state({"w": jnp.zeros(())}, optimizer, seed=0)
    state, metrics = make_train_step(loss_fn, optimizer)(state, np.float32(1))
    assert metrics.skipped
    assert state.params["w"] == 0


def test_a_batch_without_weight_is_skipped():
    state, step = toy.make_run()
    inputs, labels, weights = toy.batch_at(0)
    state, metrics = step(state, (inputs, labels, 0 * weights))
    assert metrics.skipped
    assert metrics.weight == 0
    assert_same_bits(state.params, toy.make_params())


def test_the_second_step_traces_nothing():
    traces = []

    def loss_fn(params, batch, rng):
        traces.append(1)
        return toy.loss_fn(params, batch, rng)

    state, step = toy.make_run(loss_fn, accumulation=2)
    state, _ = step(state, toy.batch_at(0))
    count = len(traces)
    for i in range(1, 4):
        state, _ = step(state, toy.batch_at(i))
    assert len(traces) == count


def test_the_state_is_given_away_and_the_parameters_are_not():
    optimizer = optax.adam(1e-3)
    params = toy.make_params()
    state = init_train_state(params, optimizer, seed=0)
    step = make_train_step(toy.loss_fn, optimizer)
    after, _ = step(state, toy.batch_at(0))
    assert all(x.is_deleted() for x in jax.tree.leaves(state.params))
    assert_same_bits(params, toy.make_params())
    assert after.step == 1


def test_half_precision_parameters_keep_their_dtype():
    seen = []
    record = optax.stateless(
        lambda updates, _: (
            seen.extend(x.dtype for x in jax.tree.leaves(updates)) or updates
        )
    )
    optimizer = optax.chain(record, optax.adam(1e-2))
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), toy.make_params())
    state = init_train_state(params, optimizer, seed=0)
    dtypes = jax.tree.map(lambda x: x.dtype, (state.params, state.opt_state))
    step = make_train_step(toy.loss_fn, optimizer, accumulation=2)
    for i in range(2):
        state, metrics = step(state, toy.batch_at(i))
    assert jax.tree.map(lambda x: x.dtype, (state.params, state.opt_state)) == dtypes
    assert set(seen) == {jnp.dtype(jnp.bfloat16)}
    assert metrics.loss.dtype == metrics.gradient_norm.dtype == jnp.float32
    assert not metrics.skipped


def test_bad_arguments_are_named():
    state, step = toy.make_run(accumulation=3)
    message = r"batch\[0\]: got shape \(8, 3\) with accumulation = 3"
    with pytest.raises(ValueError, match=message):
        step(state, toy.batch_at(0))
    with pytest.raises(ValueError, match="accumulation: got 0"):
        make_train_step(toy.loss_fn, optax.sgd(1.0), accumulation=0)
    with pytest.raises(TypeError, match=r"params\['count'\]: got int32"):
        init_train_state({"count": jnp.zeros((), jnp.int32)}, optax.sgd(1.0), seed=0)
    with pytest.raises(ValueError, match="seed: got -1"):
        init_train_state(toy.make_params(), optax.sgd(1.0), seed=-1)
