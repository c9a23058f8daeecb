"""What stands in one column computes one thing."""

from itertools import pairwise

import jax
import numpy as np
import pytest

from benchmarks import mechanisms
from benchmarks.mechanisms import CASES, factorized_random_per_batch, softmax
from benchmarks.peers import jax_peers
from benchmarks.problem import Case, Size
from tests.ops.oracles import assert_close

SIZE = Size(13, 3, heads=2, width=5, rank=4)


def output(problem, arguments=None):
    _, *x = problem.arguments if arguments is None else arguments
    return jax.jit(problem.function)(*x)


def test_softmax_of_jax_flax_and_ours_is_the_same():
    want = output(softmax("dense", SIZE))
    for build in (jax_peers.jax_nn, jax_peers.flax_nnx):
        assert_close(output(build(SIZE)), want, 1e-5, build.__name__)


def test_layers_of_flax_and_ours_have_as_many_parameters():
    ours, theirs = (
        sum(np.prod(shape) for shape, _ in build(SIZE).shapes)
        for build in (jax_peers.our_layer, jax_peers.flax_layer)
    )
    assert ours == theirs


def test_factors_copied_for_each_row_give_the_same_weights():
    once, each = mechanisms.factorized_random(SIZE), factorized_random_per_batch(SIZE)
    cotangent, r1, r2, v = once.arguments
    copies = [np.broadcast_to(r, (3, *r.shape)) for r in (r1, r2)]
    want = output(once)
    assert_close(output(each, [cotangent, *copies, v]), want, 1e-5, "per batch")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_has_shapes_that_fit_and_counts_its_operations(case: Case):
    problem = case.build(SIZE)
    _, *x = problem.structs
    assert jax.eval_shape(problem.function, *x).shape == problem.output
    sizes = [Size(n, 3, heads=2, width=5) for n in (256, 512, 1024)]
    counts = [case.flops(size, "forward") for size in sizes]
    # Twice the length: twice the operations of linear attention, up to four of others.
    for shorter, longer in pairwise(counts):
        assert 2 <= longer / shorter <= 2**case.growth
    assert case.flops(SIZE, "both") == (1 + case.backward) * case.flops(SIZE, "forward")
