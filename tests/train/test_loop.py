"""The loop: what is recorded, when it stops, and that it goes on to the bit."""

import math
import os
import signal
import time

import jax
import numpy as np
import optax
import pytest

from attn_jax.train import (
    Checkpointer,
    CheckpointWriteError,
    MetricLogger,
    NonFiniteError,
    TrainingInterrupted,
    fit,
    init_train_state,
    make_train_step,
    read_metrics,
)
from tests.train import toy
from tests.train.toy import assert_same_bits

STEPS = 8


def run(step, batch_at=toy.batch_at, state=None, **options):
    """All steps, in silence, from a new state."""
    state = new_state() if state is None else state
    return fit(
        state, step, batch_at, **{"num_steps": STEPS, "progress": None, **options}
    )


@pytest.fixture(scope="module")
def step():
    """One compiled step for all runs here."""
    return toy.make_run()[1]


@pytest.fixture(scope="module")
def straight(step):
    """A run that nothing interrupts."""
    return run(step, log_every=1)


def new_state():
    return toy.make_run()[0]


def without_rate(lines):
    """Lines without what depends on the clock."""
    return [
        {k: v for k, v in line.items() if k not in ("tokens_per_second", "name")}
        for line in lines
    ]


def test_the_loop_is_the_steps_one_after_the_other(step, straight):
    state, lines = new_state(), []
    for i in range(STEPS):
        state, metrics = step(state, toy.batch_at(i))
        lines.append((i + 1, float(metrics.loss), float(metrics.gradient_norm)))
    assert_same_bits(straight.state, state)
    keys = ("step", "loss", "gradient_norm")
    assert [tuple(line[k] for k in keys) for line in straight.history] == lines
    rates = [line["learning_rate"] for line in straight.history]
    np.testing.assert_allclose(rates, [toy.SCHEDULE(u) for u in range(STEPS)])
    assert straight.metrics == straight.history[-1]


def test_lines_are_recorded_where_they_are_due(step, tmp_path):
    evaluated = []

    def evaluate(params):
        evaluated.append(jax.tree.map(np.array, params))
        return {"validation_loss": len(evaluated)}

    with MetricLogger(tmp_path, name="toy", tensorboard=False) as logger:
        result = run(
            step,
            num_steps=7,
            log_every=3,
            logger=logger,
            evaluate=evaluate,
            eval_every=4,
        )
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [3, 4, 6, 7]
    assert [line.get("validation_loss") for line in lines] == [None, 1, None, 2]
    assert without_rate(lines) == without_rate(result.history)
    assert all(line["tokens_per_second"] > 0 for line in lines)
    assert result.tokens_per_second > 0
    assert lines[0]["tokens"] == toy.batch_at(2)[2].sum()
    # The second evaluation saw the parameters after the last step.
    assert_same_bits(evaluated[1], jax.tree.map(np.array, result.state.params))
    assert result.metrics["validation_loss"] == 2


def test_compiling_evaluating_and_saving_are_not_training(tmp_path, step, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Timed:
        """The step, with a clock on which everything takes its known time."""

        calls = 0

        def lower(self, *arguments):
            now[0] += 50
            return step.lower(*arguments)

        def __call__(self, *arguments):
            now[0] += 2 if self.calls else 7
            self.calls += 1
            return step(*arguments)

    def evaluate(params):
        now[0] += 1000
        return {}

    class Slow(Checkpointer):
        def save(self, step, state, **options):
            now[0] += 10_000
            super().save(step, state, **options)

    with Slow(tmp_path) as checkpointer:
        result = run(
            Timed(),
            num_steps=5,
            evaluate=evaluate,
            eval_every=2,
            checkpointer=checkpointer,
            checkpoint_every=2,
        )
    # The first step, which is slower, is not counted either.
    tokens = sum(float(toy.batch_at(i)[2].sum()) for i in range(1, 5))
    assert result.compile_seconds == 50
    assert math.isclose(result.tokens_per_second, tokens / 8)


def test_the_step_is_compiled_once(monkeypatch):
    state, step = toy.make_run()
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name)
    )
    result = run(step, state=state, num_steps=3)
    assert sum("backend_compile" in name for name in compiled) == 1
    assert result.compile_seconds > 0


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_rate_that_is_logged_at_update_u_is_that_of_the_formula(accumulation):
    state, step = toy.make_run(accumulation=accumulation)
    result = run(step, state=state, num_steps=6, log_every=1)
    f, peak = 0.1, 3e-2
    for line in result.history:
        s = line["step"]
        x = (s - 3) / (12 - 3)
        rate = peak * (
            s / 3 if s <= 3 else f + (1 - f) * (1 + math.cos(math.pi * x)) / 2
        )
        assert math.isclose(line["learning_rate"], rate, rel_tol=1e-5)


@pytest.mark.parametrize("at", [0, 3, 5])
def test_an_interrupted_run_equals_the_straight_one(tmp_path, step, straight, at):
    def interrupted(i):
        if i == at:
            raise KeyboardInterrupt
        return toy.batch_at(i)

    def session(batch_at):
        state = new_state()
        with (
            Checkpointer(tmp_path / "checkpoints") as checkpointer,
            MetricLogger(tmp_path, name="toy", tensorboard=False) as logger,
        ):
            if checkpointer.latest_step() is not None:
                state = checkpointer.restore(state)
            return run(
                step,
                batch_at,
                state=state,
                log_every=1,
                logger=logger,
                checkpointer=checkpointer,
                checkpoint_every=2,
            )

    message = f"after step {at} of {STEPS}.*Step {at} is saved in .*same command again"
    with pytest.raises(TrainingInterrupted, match=message) as caught:
        session(interrupted)
    assert (caught.value.step, caught.value.saved) == (at, True)
    result = session(toy.batch_at)
    assert_same_bits(result.state, straight.state)
    assert without_rate(read_metrics(tmp_path)) == without_rate(straight.history)
    # Done already: nothing is left to do, and nothing is recorded twice.
    again = session(interrupted)
    assert_same_bits(again.state, straight.state)
    assert again.metrics == {}
    assert math.isnan(again.tokens_per_second)
    assert len(read_metrics(tmp_path)) == STEPS


def test_examples_of_a_resumed_run_with_accumulation_are_those_of_the_straight_one(
    tmp_path,
):
    """Each example once and in order, though a step reads four micro-batches."""
    _, step = toy.make_run(accumulation=4)
    seen = []

    def batch_at(i):
        seen.append(i)
        return toy.batch_at(i)

    whole = run(step, batch_at, log_every=1)
    straight, seen[:] = list(seen), []
    with Checkpointer(tmp_path) as checkpointer:
        options = {"checkpointer": checkpointer, "checkpoint_every": 1, "log_every": 1}
        run(step, batch_at, num_steps=3, **options)
        resumed = run(step, batch_at, checkpointer.restore(new_state()), **options)
    assert seen == straight == list(range(STEPS))
    assert_same_bits(resumed.state, whole.state)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_step_end_and_saves_it(tmp_path, step, straight, number):
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]

    def torn(state, batch):
        # The signal comes while the old state is given away and the new one not there.
        result = step(state, batch)
        if result[0].step == 3:
            signal.raise_signal(number)
        return result

    state = new_state()
    with Checkpointer(tmp_path) as checkpointer:
        message = f"{number.name} after step 3 of {STEPS}.*Step 3 is saved"
        with pytest.raises(TrainingInterrupted, match=message):
            run(torn, state=state, checkpointer=checkpointer)
        state = checkpointer.restore(new_state())
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    result = run(step, state=state)
    assert_same_bits(result.state, straight.state)


def test_a_second_signal_does_not_wait(tmp_path, step):
    def torn(state, batch):
        result = step(state, batch)
        if result[0].step == 4:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return result

    with Checkpointer(tmp_path) as checkpointer:
        message = "SIGINT in the middle of a step, which is lost. Step 2 is saved"
        with pytest.raises(TrainingInterrupted, match=message) as caught:
            run(torn, checkpointer=checkpointer, checkpoint_every=2)
        assert checkpointer.all_steps() == [2]
    assert (caught.value.step, caught.value.saved) == (None, False)


def test_a_signal_while_the_last_state_is_saved_is_ignored(tmp_path, step, monkeypatch):
    def interrupted(i):
        if i == 3:
            raise KeyboardInterrupt
        return toy.batch_at(i)

    save = Checkpointer.save

    def signalled(self, number, state):
        signal.raise_signal(signal.SIGINT)
        save(self, number, state)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Checkpointer, "save", signalled)
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.raises(TrainingInterrupted, match="Step 3 is saved"):
            run(step, interrupted, checkpointer=checkpointer)
        assert checkpointer.restore(new_state()).step == 3


def test_a_signal_in_the_last_step_ends_the_command_too(tmp_path, step):
    def torn(state, batch):
        result = step(state, batch)
        signal.raise_signal(signal.SIGINT)
        return result

    message = r"after step 1 of 1\. Step 1 is saved"
    with (
        Checkpointer(tmp_path) as checkpointer,
        pytest.raises(TrainingInterrupted, match=message),
    ):
        run(torn, num_steps=1, checkpointer=checkpointer)


def test_without_a_checkpointer_an_interruption_says_so(step):
    def interrupted(i):
        raise KeyboardInterrupt

    with pytest.raises(TrainingInterrupted, match="Nothing is saved") as caught:
        run(step, interrupted, num_steps=2)
    assert not caught.value.saved


def test_an_interruption_that_can_not_be_saved_says_so(tmp_path, step, monkeypatch):
    def interrupted(i):
        raise KeyboardInterrupt

    def full(source, target, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with Checkpointer(tmp_path) as checkpointer:
        message = "after step 0 of 2; step 0 could not be written.*No space left"
        with pytest.raises(TrainingInterrupted, match=message) as caught:
            run(step, interrupted, num_steps=2, checkpointer=checkpointer)
    assert not caught.value.saved


@pytest.mark.parametrize(("broken", "batches"), [(2, range(3)), (8, range(8))])
def test_an_error_of_writing_ends_the_run(tmp_path, step, monkeypatch, broken, batches):
    rename = os.rename

    def full(source, target, **options):
        if str(target).endswith(f"{broken:08}"):
            raise OSError("No space left on device")
        return rename(source, target, **options)

    monkeypatch.setattr(os, "rename", full)
    seen = []

    def batch_at(i):
        seen.append(i)
        deadline = time.monotonic() + 60
        saving = checkpointer._manager.is_saving_in_progress
        while i == broken and saving() and time.monotonic() < deadline:
            time.sleep(0.01)
        return toy.batch_at(i)

    # It surfaces at the next step, and after the last one before the run returns.
    message = f"step {broken} could not be written"
    with (
        Checkpointer(tmp_path) as checkpointer,
        pytest.raises(CheckpointWriteError, match=message),
    ):
        run(step, batch_at, checkpointer=checkpointer, checkpoint_every=2)
    assert seen == [*batches]


def poisoned_at(steps):
    def batch_at(i):
        inputs, labels, weights = toy.batch_at(i)
        return (inputs * np.float32(np.nan) if i in steps else inputs), labels, weights

    return batch_at


def test_skipped_steps_are_counted_and_recorded(step):
    result = run(step, poisoned_at({1, 2, 5}), log_every=100, max_consecutive_skips=3)
    lines = [(x["step"], x["skipped"], x["skipped_steps"]) for x in result.history]
    assert lines == [(2, True, 1), (3, True, 2), (6, True, 3), (8, False, 3)]
    assert math.isnan(result.history[0]["loss"])
    assert result.state.step == STEPS


def test_the_run_ends_after_so_many_skips_in_a_row(tmp_path, step):
    message = (
        r"steps 3 to 5 were not finite: at step 5 the loss is nan.*batch of step 4"
    )
    logger = MetricLogger(tmp_path, name="toy", tensorboard=False)
    bad = poisoned_at(range(2, 100))
    with pytest.raises(NonFiniteError, match=message):
        run(step, bad, logger=logger, max_consecutive_skips=3)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [3, 4, 5]
    assert lines[0]["loss"] is None
    assert lines[0]["nonfinite"]["loss"] == "nan"


def test_without_a_schedule_the_rate_is_not_known():
    optimizer = optax.sgd(0.1)
    state = init_train_state(toy.make_params(), optimizer, seed=0)
    step = make_train_step(toy.loss_fn, optimizer)
    result = run(step, state=state, num_steps=1)
    assert result.metrics["learning_rate"] is None


def test_progress_is_told_of_each_step(step):
    calls = []

    class Told:
        def start(self, step, num_steps):
            calls.append(("start", step, num_steps))

        def update(self, step, values):
            calls.append(
                ("update", step, sorted({"loss", "tokens_per_second"} & {*values}))
            )

        def stop(self):
            calls.append(("stop",))

    known = ["loss", "tokens_per_second"]
    fit(new_state(), step, toy.batch_at, num_steps=2, progress=Told())
    steps = [("update", 1, known), ("update", 2, known)]
    assert calls == [("start", 0, 2), *steps, ("stop",)]
    calls.clear()
    with pytest.raises(ZeroDivisionError):
        fit(new_state(), step, lambda i: 1 / 0, num_steps=2, progress=Told())
    assert calls == [("start", 0, 2), ("stop",)]


def test_progress_is_automatic(step, capsys):
    fit(new_state(), step, toy.batch_at, num_steps=2)
    assert "training: step 2/2, loss " in capsys.readouterr().err


def test_bad_arguments_are_named(tmp_path, step):
    with pytest.raises(ValueError, match="eval_every: got 3 without evaluate"):
        run(step, eval_every=3)
    with pytest.raises(
        ValueError, match="checkpoint_every: got 3 without checkpointer"
    ):
        run(step, checkpoint_every=3)
    with pytest.raises(ValueError, match="log_every: got 0"):
        run(step, log_every=0)
    with pytest.raises(ValueError, match="max_consecutive_skips: got 0"):
        run(step, max_consecutive_skips=0)
    with pytest.raises(
        ValueError, match="num_steps: got 2, with a state after 5 steps"
    ):
        run(step, state=new_state()._replace(step=np.int32(5)), num_steps=2)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(4, new_state())
        checkpointer.wait()
        with pytest.raises(ValueError, match="state: got one after 0 steps, while"):
            run(step, checkpointer=checkpointer)
