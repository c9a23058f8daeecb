"""Learning rates against the papers' numbers."""

import jax
import numpy as np
import optax
import pytest

from attn_jax.train import cosine_schedule, noam_schedule


@pytest.mark.parametrize(
    ("d_model", "step", "rate"),
    [
        (512, 1, 1.747e-7),
        (512, 4_000, 6.988e-4),
        (512, 100_000, 1.398e-4),
        (1024, 4_000, 4.941e-4),
    ],
)
def test_noam_has_the_rates_of_the_paper(d_model, step, rate):
    schedule = noam_schedule(d_model, 4_000)
    np.testing.assert_allclose(schedule(step - 1), rate, rtol=5e-4)


def test_noam_is_largest_at_the_end_of_the_warmup():
    rates = jax.vmap(noam_schedule(512, 40, scale=2.0))(np.arange(200))
    assert np.argmax(rates) == 39
    np.testing.assert_allclose(rates[39], 2 * 512**-0.5 * 40**-0.5, rtol=1e-6)


def test_cosine_at_its_corners():
    schedule = cosine_schedule(2.0, num_steps=100, warmup_steps=10)
    rates = jax.vmap(schedule)(np.arange(120))
    np.testing.assert_allclose(rates[:10], 0.2 * np.arange(1, 11), rtol=1e-6)
    # Half of the 90 updates after the warm-up lie behind update 55.
    np.testing.assert_allclose(rates[54], 0.2 + 1.8 / 2, rtol=1e-5)
    np.testing.assert_allclose(rates[99:], 0.2, rtol=1e-5)
    assert (np.diff(rates[9:100]) < 0).all()


def test_cosine_without_warmup():
    schedule = cosine_schedule(1.0, num_steps=4, warmup_steps=0, final_fraction=0)
    wanted = (1 + np.cos(np.pi * np.arange(1, 5) / 4)) / 2
    rates = [schedule(count) for count in range(4)]
    np.testing.assert_allclose(rates, wanted, atol=1e-7)


def test_the_optimizer_uses_the_rate_of_its_update():
    schedule = noam_schedule(4, 2)
    optimizer = optax.sgd(schedule)
    state = optimizer.init(np.float32(0))
    for count in range(4):
        update, state = optimizer.update(np.float32(-1), state)
        np.testing.assert_allclose(update, schedule(count), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: noam_schedule(512, 0), "warmup_steps: got 0"),
        (lambda: noam_schedule(0, 10), "d_model: got 0"),
        (
            lambda: cosine_schedule(1.0, num_steps=10, warmup_steps=10),
            "warmup_steps: got 10 with num_steps = 10",
        ),
        (
            lambda: cosine_schedule(0.0, num_steps=10, warmup_steps=1),
            r"peak: got 0\.0",
        ),
        (
            lambda: cosine_schedule(
                1.0, num_steps=10, warmup_steps=1, final_fraction=2.0
            ),
            r"final_fraction: got 2\.0",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
