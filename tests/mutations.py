"""Faults planted one at a time in a copy of the package: the suite notices each.

    python -m tests.mutations              plant all of them
    python -m tests.mutations causal rms   those whose name holds one of these words

A mutation replaces a text that stands exactly once in a file, and names the tests that
have to fail then; on the unbroken copy the same tests pass. The working tree is never
touched.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("attn_jax", "tests", "pyproject.toml")
CACHE = ".jax_cache"
TIMEOUT = 600


@dataclass(frozen=True)
class Mutation:
    """A fault: `old` in `path` becomes `new`, and all of `tests` fail."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """The file with the fault in it; raises where the text is not there once."""
        text = (root / self.path).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.name}: its text stands {count} times in {self.path}; expected "
                f"once; bring the mutation up to date:\n{self.old}"
            )
        return text.replace(self.old, self.new)


def plant(mutations: Sequence[Mutation]) -> Iterable[tuple[Mutation, str]]:
    """Each mutation with what is wrong about it; "" where its tests fail.

    Raises:
      RuntimeError: one of the tests fails without any fault.
    """
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, copy / name, ignore=ignored)
            else:
                shutil.copyfile(source, copy / name)
        if "CI" not in os.environ:  # what is compiled once serves every copy
            (ROOT / CACHE).mkdir(exist_ok=True)
            (copy / CACHE).symlink_to(ROOT / CACHE)
        every = sorted({test for each in mutations for test in each.tests})
        code, failed, output = _run(copy, every)
        if code != 0:
            raise RuntimeError(f"without a fault these fail: {failed}\n{output}")
        for mutation in mutations:
            path = copy / mutation.path
            whole = path.read_text(encoding="utf-8")
            path.write_text(mutation.apply(copy), encoding="utf-8")
            code, failed, output = _run(copy, mutation.tests)
            path.write_text(whole, encoding="utf-8")
            survived = [
                test
                for test in mutation.tests
                if not any(id == test or id.startswith(test + "[") for id in failed)
            ]
            wrong = f"these do not fail: {survived}" if survived else ""
            yield (
                mutation,
                wrong if code == 1 else f"pytest ended with {code}\n{output}",
            )


def _run(copy: Path, tests: Sequence[str]) -> tuple[int, list[str], str]:
    """Exit code, failed tests and output of pytest in the copy."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    environment.pop("PYTEST_ADDOPTS", None)
    options = ("-q", "--tb=line", "-rfE", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *options, *tests],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    failed = re.findall(r"^FAILED (\S+?\.py::.*?)(?: - .*)?$", done.stdout, re.M)
    return done.returncode, failed, done.stdout + done.stderr


MASKING, SOFTMAX = "attn_jax/ops/_masking.py", "tests/ops/test_softmax.py"
INPUTS, LINEAR = "attn_jax/ops/_linear_inputs.py", "tests/ops/test_linear.py"
RULES, MASKS = "attn_jax/ops/_mask_rules.py", "tests/ops/test_masks.py"
BLOCKS, TILES = "attn_jax/ops/_blocks.py", "tests/ops/test_softmax_blockwise.py"
BLOCKWISE = "attn_jax/ops/softmax_blockwise.py"
SYNTHESIZER = "tests/ops/test_synthesizer.py"
VARIANTS = "tests/ops/test_synthesizer_variants.py"
FAMILY = "tests/nn/test_synthesizer.py"
EXCLUSIVE, PARTIAL = "tests/ops/test_exclusive.py", "tests/ops/test_partial.py"
BUCKETS, LSH = "attn_jax/ops/_lsh_buckets.py", "tests/ops/test_lsh.py"
PRECISION = "tests/nn/test_precision.py"
PAIRS = "tests/models/test_encoder_decoder.py"
WEIGHTS = "tests/models/test_attention_weights.py"
GATES, SHELL = "tests/nn/test_exclusive.py", "attn_jax/nn/shell.py"
LAYER, LOSSES = "tests/nn/test_contract.py", "tests/train/test_losses.py"

MUTATIONS = (
    Mutation(
        "masked before the softmax alone: a blind row is the mean of what is masked",
        MASKING,
        """\
    terms = jnp.where(allowed, terms, 0)
    total = jnp.sum(terms, axis=-1, keepdims=True)
    return jnp.where(allowed, terms / jnp.where(total > 0, total, 1), 0)
""",
        """\
    total = jnp.sum(terms, axis=-1, keepdims=True)
    return terms / jnp.where(total > 0, total, 1)
""",
        (
            f"{SOFTMAX}::test_a_query_that_sees_nothing_gives_0_and_gets_0",
            "tests/nn/test_masks.py::"
            "test_a_query_that_sees_nothing_gives_0_and_gets_0[softmax]",
        ),
    ),
    Mutation(
        "masked after the softmax alone: weights do not sum to 1",
        MASKING,
        "        logits = jnp.where(allowed, logits, lowest)\n",
        "        total_of_all = jnp.sum(jnp.exp(logits), axis=-1, keepdims=True)\n"
        "        return jnp.where(allowed, jnp.exp(logits) / total_of_all, 0)\n",
        (
            f"{SOFTMAX}::test_every_mask_equals_the_oracle[causal]",
            f"{SYNTHESIZER}::test_attention_equals_the_oracle_under_every_mask",
        ),
    ),
    Mutation(
        "causal off by one",
        RULES,
        "        return j <= i\n",
        "        return j <= i + 1\n",
        (
            f"{SOFTMAX}::test_no_token_moves_what_came_before_it[3]",
            f"{MASKS}::test_both_alignments_of_a_causal_mask_can_be_said",
            f"{LAYER}::test_no_output_before_a_changed_token_moves[softmax-3]",
            f"{LAYER}::test_no_output_before_a_changed_token_moves[lsh-3]",
            f"{LSH}::test_no_later_token_contributes_to_what_came_before_it",
        ),
    ),
    Mutation(
        "causal off by one in tiles",
        BLOCKS,
        "                part = keys <= at\n",
        "                part = keys <= at + 1\n",
        (
            f"{TILES}::test_causal_to_the_bit[4]",
            f"{TILES}::test_tiles_equal_the_definition[causal-4]",
        ),
    ),
    Mutation(
        "padded keys in the denominator of linear attention",
        INPUTS,
        "    return keep(feature_map(keep(x, real).astype(dtype)), real)\n",
        "    return feature_map(keep(x, real).astype(dtype))\n",
        (
            f"{LINEAR}::test_padding_equals_the_oracle[recurrent]",
            f"{LINEAR}::test_padded_keys_alone_equal_the_oracle[scan]",
        ),
    ),
    Mutation(
        "padded keys in the denominator of bidirectional linear attention",
        INPUTS,
        "    return keep(feature_map(keep(x, real).astype(dtype)), real)\n",
        "    return feature_map(keep(x, real).astype(dtype))\n",
        (f"{LINEAR}::test_padded_keys_equal_keys_cut_off",),
    ),
    Mutation(
        "padded keys in the denominator of linear attention in chunks",
        INPUTS,
        "    return keep(feature_map(keep(x, real).astype(dtype)), real)\n",
        "    return feature_map(keep(x, real).astype(dtype))\n",
        (f"{LINEAR}::test_padded_keys_alone_equal_the_oracle[chunked]",),
    ),
    Mutation(
        "chunks of linear attention that see one key too many",
        "attn_jax/ops/_linear_block.py",
        "    inside = jnp.tri(sizes.c, dtype=bool)[None, None]\n",
        "    inside = jnp.tri(sizes.c, k=1, dtype=bool)[None, None]\n",
        (f"{LINEAR}::test_no_token_moves_what_came_before_it[4-chunked]",),
    ),
    Mutation(
        "chunks that carry their own sums",
        "attn_jax/ops/_linear_block.py",
        "    return kv[:, :-1], z[:, :-1], Sums(kv[:, -1], z[:, -1], last)\n",
        "    return kv[:, 1:], z[:, 1:], Sums(kv[:, -1], z[:, -1], last)\n",
        (f"{LINEAR}::test_causal_forms_equal_the_oracle[chunked]",),
    ),
    Mutation(
        "query heads tiled over the groups",
        "attn_jax/ops/softmax.py",
        """\
    grouped = (q.astype(dtype) * _scale(scale, d)).reshape(*leading, t, g, h // g, d)
""",
        """\
    grouped = (q.astype(dtype) * _scale(scale, d)).reshape(*leading, t, h // g, g, d)
    grouped = jnp.swapaxes(grouped, -2, -3)
""",
        (
            f"{SOFTMAX}::test_every_mask_equals_the_oracle[none]",
            f"{LAYER}::test_grouped_heads_equal_repeated_heads[6-3-softmax]",
        ),
    ),
    Mutation(
        "value heads tiled over the groups",
        MASKING,
        """\
        w = weights.reshape(*weights.shape[:-3], g, h // g, t, s)
        y = jnp.einsum("...grts,...sge->...tgre", w, v)
""",
        """\
        w = weights.reshape(*weights.shape[:-3], h // g, g, t, s)
        y = jnp.einsum("...rgts,...sge->...tgre", w, v)
""",
        (
            f"{SYNTHESIZER}::test_attention_equals_the_oracle_under_every_mask",
            f"{LAYER}::test_grouped_heads_equal_repeated_heads[6-3-dense]",
        ),
    ),
    Mutation(
        "scores of a Synthesizer reshaped, not transposed",
        "attn_jax/ops/_synthesizer_layers.py",
        """\
    return _affine("...htd,hdn->...htn", hidden, w, b)
""",
        """\
    y = _affine("...htd,hdn->...thn", hidden, w, None)
    y = y.reshape(*hidden.shape[:-1], -1)
    return y if b is None else y + lift(b[:, None], y.ndim)
""",
        (
            f"{SYNTHESIZER}::test_dense_logits_equal_the_oracle",
            f"{SYNTHESIZER}::test_no_token_moves_what_came_before_it[3]",
            f"{SYNTHESIZER}::test_each_head_is_computed_from_its_own_weights",
            f"{LAYER}::test_no_output_before_a_changed_token_moves[dense-3]",
        ),
    ),
    Mutation(
        "both factors of a dense Synthesizer tiled",
        "attn_jax/ops/synthesizer.py",
        "    return jnp.repeat(a, b.shape[-1], axis=-1) * jnp.tile(b, a.shape[-1])\n",
        "    return jnp.tile(a, b.shape[-1]) * jnp.tile(b, a.shape[-1])\n",
        (
            f"{SYNTHESIZER}::test_factorized_dense_logits_equal_the_oracle",
            f"{FAMILY}::test_factors_of_16_give_256_distinct_logits",
        ),
    ),
    Mutation(
        "a decoded token that takes the first row of a random matrix",
        "attn_jax/nn/synthesizer.py",
        "rows = rows_at(self.random[...], places.shape[-2], places[..., 0, :, 0])\n",
        "rows = self.random[:, : places.shape[-2]]\n",
        (
            f"{LAYER}::test_decoding_equals_the_full_pass[random]",
            f"{FAMILY}::test_a_mixture_of_everything_decodes_as_it_attends",
        ),
    ),
    Mutation(
        "a convolution that reads on in the segment before",
        "attn_jax/ops/_convolution.py",
        "    return there & jnp.take_along_axis(allowed, at, axis=-1)\n",
        "    return jnp.ones_like(there)\n",
        (
            f"{VARIANTS}::test_taps_are_real_tokens_that_the_query_may_see[segments]",
            f"{FAMILY}::test_a_convolution_follows_positions[False]",
        ),
    ),
    Mutation(
        "a convolution that reads padding",
        "attn_jax/ops/_convolution.py",
        "    if real is None:\n        at = lift",
        "    if True:\n        at = lift",
        (
            f"{VARIANTS}::test_taps_are_real_tokens_that_the_query_may_see[padding]",
            f"{LAYER}::test_ragged_rows_equal_unpadded_rows[convolution]",
        ),
    ),
    Mutation(
        "a fixed random matrix that is trained",
        "attn_jax/train/trained.py",
        "    return isinstance(x, nnx.Variable) and not isinstance(x, nnx.Param)\n",
        "    return False\n",
        (
            "tests/train/test_kept.py::"
            "test_a_fixed_matrix_has_no_gradient_no_decay_and_no_optimizer_state",
        ),
    ),
    Mutation(
        "exclude_self by the root mean square, not the length",
        "attn_jax/ops/exclusive.py",
        "    along = jnp.sum(y * u) / jnp.where(ranged, square, 1)\n",
        "    along = jnp.sum(y * u) / jnp.where(ranged, square / u.size, 1)\n",
        (
            f"{EXCLUSIVE}::test_is_orthogonal_to_the_own_value_and_no_longer_than_y",
            f"{EXCLUSIVE}::test_a_token_that_sees_itself_alone_gives_0",
        ),
    ),
    Mutation(
        "exclude_self with a number added to the length",
        "attn_jax/ops/exclusive.py",
        """\
    u, peak, ranged = leveled(v)
    square = jnp.sum(u * u)
""",
        """\
    _, peak, ranged = leveled(v)
    u = jnp.where(ranged, v, 0)
    square = jnp.sum(u * u) + 1e-6
""",
        (f"{EXCLUSIVE}::test_values_of_any_length_in_float32[1e-12]",),
    ),
    Mutation(
        "an output gate that comes before the exclusive projection",
        SHELL,
        """\
            y = exclude_self(y, v, strength=self.exclusive_strength())
        return self._join(x, y, rng)
""",
        """\
            if self.config.output_gate:
                y = y * jax.nn.sigmoid(self.output_gate(x))
            y = exclude_self(y, v, strength=self.exclusive_strength())
            return dropout(self.output(y), self.config.dropout_rate, rng)
        return self._join(x, y, rng)
""",
        (f"{GATES}::test_gates_and_a_value_residual_equal_their_oracle[dense]",),
    ),
    Mutation(
        "the first layer's values in another order than the tokens that are decoded",
        "attn_jax/nn/attention.py",
        "jnp.take_along_axis(first, order[..., None], axis=1)",
        "first[:, :]",
        (f"{GATES}::test_gates_and_a_value_residual_equal_their_oracle[softmax]",),
    ),
    Mutation(
        "a layer that is named from the end is not found",
        "attn_jax/models/stack_config.py",
        "{layer, layer - self.num_layers} & {*chosen}",
        "{layer} & {*chosen}",
        (
            "tests/models/test_exclusive.py::"
            "test_layers_that_are_chosen_are_exclusive_and_no_others[range(-3, 0)]",
        ),
    ),
    Mutation(
        "a value beside itself counted as a pair",
        "attn_jax/analysis/similarity.py",
        "    others = others - jnp.sum(v * v, axis=-1)\n",
        "",
        (
            "tests/analysis/test_similarity.py::test_equals_looking_at_every_pair[plain]",
        ),
    ),
    Mutation(
        "a vector over its greatest entry without the where at zero",
        "attn_jax/ops/_vectors.py",
        "    u = jnp.where(ranged, v, 0) * root * root\n",
        "    u = v / jnp.max(jnp.abs(v), initial=0)\n",
        (
            f"{EXCLUSIVE}::test_reduces_to_y_at_a_token_whose_value_has_no_direction",
            "tests/nn/test_masks.py::"
            "test_debug_nans_finds_nothing_in_what_a_mask_hides[softmax]",
            f"{LSH}::test_debug_nans_finds_nothing",
        ),
    ),
    Mutation(
        "a pair of tokens counted in every round that it meets in",
        "attn_jax/ops/lsh.py",
        " / jnp.maximum(times, 1)\n",
        "\n",
        (
            f"{LSH}::test_every_mask_equals_the_oracle[causal]",
            f"{LSH}::test_a_pair_that_meets_in_several_rounds_counts_once",
            "tests/nn/test_oracle.py::test_layer_equals_its_oracle_in_float64[lsh]",
        ),
    ),
    Mutation(
        "as many buckets as the row with its padding would have",
        "attn_jax/ops/lsh.py",
        "        half = -(-runs.size // (2 * size))\n",
        "        half = jnp.full_like(runs.size, -(-len(qk) // (2 * size)))\n",
        (
            f"{LSH}::test_padding_has_no_influence",
            f"{LAYER}::test_ragged_rows_equal_unpadded_rows[lsh]",
        ),
    ),
    Mutation(
        "padding sorted among the tokens",
        BUCKETS,
        "    keys = (hidden, *ids, here)\n",
        "    keys = (0 * hidden, *ids, here)\n",
        (
            f"{LSH}::test_padding_has_no_influence",
            f"{LSH}::test_every_mask_equals_the_oracle[padding]",
            f"{LAYER}::test_ragged_rows_equal_unpadded_rows[lsh]",
        ),
    ),
    Mutation(
        "a chunk that sees the one after it",
        BUCKETS,
        "    return (key == query) | (key == query - 1)\n",
        "    return (key == query) | (key == query + 1)\n",
        (
            f"{LSH}::test_every_mask_equals_the_oracle[none]",
            f"{LSH}::test_every_length_equals_the_oracle",
        ),
    ),
    Mutation(
        "a window one key short",
        RULES,
        "        return (-self.left <= distance) & (distance <= self.right)\n",
        "        return (-self.left < distance) & (distance <= self.right)\n",
        (f"{MASKS}::test_window_lets_exactly_w_keys_through",),
    ),
    Mutation(
        "an offset that moves rules the wrong way",
        RULES,
        "        start = jnp.asarray(0 if self.start is None else self.start)\n",
        "        start = -jnp.asarray(0 if self.start is None else self.start)\n",
        (
            f"{MASKS}::test_offset_places_the_first_query",
            f"{LAYER}::test_decoding_equals_the_full_pass[softmax]",
        ),
    ),
    Mutation(
        "a running softmax that forgets to rescale",
        BLOCKWISE,
        "                    return Rows(new.m, total, rows.acc * keep + new.acc)\n",
        "                    return Rows(new.m, total, rows.acc + new.acc)\n",
        (f"{TILES}::test_tiles_equal_the_definition[full-4]",),
    ),
    Mutation(
        "a slab of a short sequence under the mask of the first",
        "attn_jax/ops/_block_step.py",
        "bq=rows, bk=keys, first=first)\n",
        "bq=rows, bk=keys)\n",
        (
            f"{TILES}::test_slabs_equal_the_definition[offsets]",
            f"{TILES}::test_causal_to_the_bit[None]",
        ),
    ),
    Mutation(
        "a tile on the edge of causality taken for whole",
        BLOCKS,
        "        return first_k <= last_q, last_k <= first_q\n",
        "        return first_k <= last_q, last_k <= last_q\n",
        (f"{TILES}::test_causal_to_the_bit[4]",),
    ),
    Mutation(
        "the last block of keys read past the end",
        BLOCKS,
        "    every = some & ((jnp.arange(grid.nk) + 1) * grid.bk <= grid.s)[None, :]\n",
        "    every = some\n",
        (f"{TILES}::test_tiles_equal_the_definition[full-4]",),
    ),
    Mutation(
        "elu(x) + 1 as it is written",
        "attn_jax/ops/feature_maps.py",
        "    return jnp.where(x >= 0, x + 1, jnp.exp(jnp.minimum(x, 0)))\n",
        "    return jax.nn.elu(x) + 1\n",
        (f"{LINEAR}::test_elu_plus_one_in_bfloat16_stays_within_1_percent_of_exp",),
    ),
    Mutation(
        "a number added to the denominator of linear attention",
        INPUTS,
        "    some = den != 0\n",
        "    den = den + 1e-6\n    some = den != 0\n",
        (
            f"{LINEAR}::"
            "test_the_output_does_not_depend_on_the_scale_of_the_features[scan]",
        ),
    ),
    Mutation(
        "sums that run on into the next segment",
        INPUTS,
        "begins_l | begins_r, jnp.where(begins_r, sum_r, sum_l + sum_r)\n",
        "begins_l | begins_r, sum_l + sum_r\n",
        (f"{LINEAR}::test_segments_in_a_row_equal_the_oracle[scan]",),
    ),
    Mutation(
        "gradients of sums unwound by subtraction",
        INPUTS,
        """\
        return jax.lax.associative_scan(jnp.add, terms, axis=axis)
""",
        """\

        @jax.custom_vjp
        def prefix(x):
            return jax.lax.associative_scan(jnp.add, x, axis=axis)

        def backward(_, g):
            sums = jnp.cumsum(g, axis)
            return (jnp.take(sums, jnp.array([-1]), axis) - sums + g,)

        prefix.defvjp(lambda x: (prefix(x), None), backward)
        return prefix(terms)
""",
        (
            f"{LINEAR}::test_no_gradient_is_unwound_from_those_of_earlier_outputs"
            "[4-scan]",
            f"{LINEAR}::test_no_gradient_is_unwound_from_those_of_earlier_outputs"
            "[4-chunked]",
        ),
    ),
    Mutation(
        "a recurrent cell that stays at the first position",
        "attn_jax/nn/linear_cell.py",
        "        return LinearCarry(state, carry.position + 1), y\n",
        "        return LinearCarry(state, carry.position), y\n",
        (
            "tests/nn/test_linear_cell.py::"
            "test_a_recurrent_network_equals_decoding_at_once",
            "tests/nn/test_linear_cell.py::"
            "test_both_views_give_the_same_numbers_and_gradients[rich]",
        ),
    ),
    Mutation(
        "rotary positions that ignore the offset",
        "attn_jax/nn/query_key.py",
        "        if positions is None:\n",
        "        if positions is not None:\n",
        (f"{LAYER}::test_decoding_equals_the_full_pass[softmax]",),
    ),
    Mutation(
        "decoding that sees the slots after it",
        "attn_jax/nn/core.py",
        "        mask = masks.causal().offset(length) & masks.padding(every, real)\n",
        "        mask = masks.padding(every, real)\n",
        (
            f"{LAYER}::test_decoding_equals_the_full_pass[softmax]",
            f"{LAYER}::test_decoding_equals_the_full_pass[dense]",
        ),
    ),
    Mutation(
        "padding that takes room in the cache",
        "attn_jax/nn/core.py",
        "        slots = jnp.where(real, positions, cache.v.shape[1])\n",
        "        slots = positions\n",
        (f"{LAYER}::test_a_row_without_room_is_nan_and_the_others_go_on[softmax]",),
    ),
    Mutation(
        "positions that count padding",
        "attn_jax/nn/token_positions.py",
        "    counted = jnp.ones((*leading, t), jnp.int32) if real is None else real\n",
        "    counted = jnp.ones((*leading, t), jnp.int32)\n",
        (
            f"{LAYER}::test_ragged_rows_equal_unpadded_rows[random]",
            "tests/nn/test_parts.py::test_token_positions_count_real_tokens",
        ),
    ),
    Mutation(
        "columns of a Synthesizer that are not those of the keys' positions",
        "attn_jax/nn/synthesizer.py",
        "    if seen is None:\n        return logits[..., :s]\n",
        "    if True:\n        return logits[..., :s]\n",
        (f"{LAYER}::test_packed_segments_equal_rows_of_their_own[random]",),
    ),
    Mutation(
        "a mask that a mechanism cannot honour let through",
        "attn_jax/nn/_checks.py",
        "        if kind not in mechanism.masks:\n",
        "        if not mechanism.masks:\n",
        (
            "tests/models/test_config.py::"
            "test_masks_that_linear_attention_cannot_honour",
        ),
    ),
    Mutation(
        "a softmax in the dtype of its inputs",
        "attn_jax/ops/_shapes.py",
        "    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)\n",
        "    return jnp.result_type(*arrays)\n",
        (
            f"{PRECISION}::"
            "test_exponentials_of_a_bfloat16_layer_are_computed_in_float32",
            f"{SOFTMAX}::test_weights_are_computed_in_float32[bfloat16]",
        ),
    ),
    Mutation(
        "what padding holds let into a layer",
        "attn_jax/nn/_entrance.py",
        "        x = attended = clean(x, real)\n",
        "        attended = x\n",
        (f"{LAYER}::test_what_padding_holds_has_no_influence[dense]",),
    ),
    Mutation(
        "a checkpoint read onto one device, whatever was asked for",
        "attn_jax/train/filing.py",
        '    sharding = getattr(leaf, "sharding", None)\n',
        "    sharding = None\n",
        (
            "tests/train/test_restore.py::"
            "test_a_state_of_four_devices_is_restored_on_any_number",
        ),
    ),
    Mutation(
        "dropout that does not scale what it keeps",
        "attn_jax/nn/dropout.py",
        "    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))\n",
        "    return jnp.where(keep, x, jnp.zeros_like(x))\n",
        ("tests/nn/test_parts.py::test_dropout_keeps_the_mean",),
    ),
    Mutation(
        "label smoothing by the sum over the classes",
        "attn_jax/train/losses.py",
        "        score += label_smoothing * jnp.mean(logits, axis=-1)\n",
        "        score += label_smoothing * jnp.sum(logits, axis=-1)\n",
        (f"{LOSSES}::test_label_smoothing_in_closed_form",),
    ),
    Mutation(
        "ignored labels that count",
        "attn_jax/train/losses.py",
        "    weights = jnp.where(labels < 0, 0, weights)\n",
        "    labels = jnp.maximum(labels, 0)\n",
        (f"{LOSSES}::test_padding_leaves_the_mean_unchanged",),
    ),
    Mutation(
        "biases that decay",
        "attn_jax/train/optimizers.py",
        "weight_decay=weight_decay, mask=mask)\n",
        "weight_decay=weight_decay)\n",
        ("tests/train/test_optimizers.py::test_equals_the_algorithm",),
    ),
    Mutation(
        "a dtype cast in silence when a checkpoint is read",
        "attn_jax/train/filing.py",
        """    return f"{jnp.dtype(leaf.dtype)}[{','.join(map(str, leaf.shape))}]"\n""",
        """    return f"[{','.join(map(str, leaf.shape))}]"\n""",
        ("tests/train/test_checkpoints.py::test_what_differs_is_listed",),
    ),
    Mutation(
        "a checkpoint with a flipped bit, read in silence",
        "attn_jax/train/integrity.py",
        "            size, crc = size + len(piece), zlib.crc32(piece, crc)\n",
        "            size += len(piece)\n",
        (
            "tests/train/test_restore.py::"
            "test_a_damaged_step_is_named_and_what_to_do[flipped]",
        ),
    ),
    Mutation(
        "a step that failed to be written, noticed at the end",
        "attn_jax/train/loop.py",
        "                    checkpointer.check()\n",
        "                    pass\n",
        (
            "tests/train/test_loop.py::test_an_error_of_writing_ends_the_run[2-batches0]",
        ),
    ),
    Mutation(
        "micro-batches that share a key",
        "attn_jax/train/step.py",
        "        key = jax.random.fold_in(rng, index)\n",
        "        key = jax.random.fold_in(rng, 0)\n",
        (
            "tests/train/test_step.py::"
            "test_rng_is_a_function_of_seed_step_and_micro_batch[4]",
        ),
    ),
    Mutation(
        "the mean of the means of micro-batches",
        "attn_jax/train/step.py",
        "        (loss, weight), grads = value_and_grad(trained)\n",
        "        (loss, weight), grads = value_and_grad(trained)\n"
        "        grads = jax.tree.map(lambda g: g / weight, grads)\n"
        "        loss, weight = loss / weight, weight / weight\n",
        ("tests/train/test_step.py::test_accumulation_equals_the_large_batch",),
    ),
    Mutation(
        "padding of the source is attended to",
        "attn_jax/models/tokens.py",
        "        mask = masks.padding(keys, queries)\n",
        "        mask = masks.padding(jnp.ones_like(keys), queries)\n",
        (f"{PAIRS}::test_what_pads_a_source_has_no_influence",),
    ),
    Mutation(
        "padding of a memory is decoded from",
        "attn_jax/nn/attention.py",
        "        real = jnp.ones((b, s), bool) if real is None else real\n",
        "        real = jnp.ones((b, s), bool)\n",
        (
            f"{PAIRS}::test_ragged_targets_equal_unpadded_ones",
            "tests/nn/test_attention.py::test_a_context_read_once_equals_cross_attention",
        ),
    ),
    Mutation(
        "a beam goes on with the source of another row",
        "attn_jax/models/encoder_decoder.py",
        "            self.decoder.take_context(cache.context, rows),\n",
        "            self.decoder.take_context(cache.context, jnp.sort(rows)),\n",
        (f"{PAIRS}::test_rows_of_a_cache_go_on_with_their_own_source",),
    ),
    Mutation(
        "beams that go on from another than they were chosen from",
        "attn_jax/decoding/_start.py",
        "    taken = model.take(cache, rows)\n",
        "    taken = model.take(cache, jnp.sort(rows))\n",
        ("tests/decoding/test_translation.py::test_scores_are_those_of_full_passes",),
    ),
    Mutation(
        "weights of every layer over the tokens of the first",
        "attn_jax/models/stack.py",
        "            x = block(x, **around)\n\n",
        "\n",
        (f"{WEIGHTS}::test_weights_of_every_layer_give_the_logits",),
    ),
    Mutation(
        "source and target of cross-attention counted for one another",
        "attn_jax/analysis/flops.py",
        "attention_flops(other, t, s)",
        "attention_flops(other, t if s is None else s, t)",
        ("tests/analysis/test_flops.py::test_counts_are_those_of_the_encoder_decoder",),
    ),
    Mutation(
        "the last bin of a logistic closed",
        "attn_jax/train/logistics.py",
        "        jnp.where(last, 0, jax.nn.log_sigmoid(a))\n",
        "        jax.nn.log_sigmoid(a)\n",
        ("tests/train/test_logistics.py::test_probabilities_sum_to_1",),
    ),
    Mutation(
        "logistics half as wide when drawn",
        "attn_jax/train/logistics.py",
        "y = mean + jnp.exp(log_scale) * ",
        "y = mean + 0.5 * jnp.exp(log_scale) * ",
        ("tests/train/test_logistics.py::test_what_is_drawn_has_the_likelihood",),
    ),
    Mutation(
        "images that read the pixel they predict",
        "attn_jax/data/images.py",
        "np.pad(targets[:, :-1], ((0, 0), (1, 0)))",
        "targets",
        (
            "tests/data/test_images.py"
            "::test_a_batch_reads_black_and_all_pixels_but_the_last",
        ),
    ),
    Mutation(
        "hosts that read the first rows of a batch of shards",
        "attn_jax/data/token_split.py",
        "numbers = [step * batch_size + row for row in wanted]",
        "numbers = [step * batch_size + i for i, _ in enumerate(wanted)]",
        ("tests/data/test_shards.py::test_hosts_together_have_the_batch_of_one",),
    ),
    Mutation(
        "a permutation that folds what leads out of its range",
        "attn_jax/data/_random.py",
        "        numbers[out] = _network(numbers[out], words[0], bits)\n",
        "        numbers[out] = numbers[out] % np.uint64(count)\n",
        (
            "tests/data/test_shards.py"
            "::test_shuffled_is_a_permutation_of_its_own_each_epoch",
        ),
    ),
    Mutation(
        "a folder that looks whole before its last shard",
        "attn_jax/data/shard_writing.py",
        "        index.write(folder / UNFINISHED)\n        if notify",
        "        index.write(folder / INDEX)\n        if notify",
        (
            "tests/data/test_shards.py"
            "::test_a_preparation_that_is_stopped_leaves_nothing_whole_and_goes_on",
        ),
    ),
    Mutation(
        "shards that nobody compares with their checksums",
        "attn_jax/data/_shard_index.py",
        "    if found != shard.sha256:",
        "    if not found:",
        ("tests/data/test_shards.py::test_what_was_changed_is_refused",),
    ),
    Mutation(
        "a score that counts the last token of the context",
        "attn_jax/interop/_scores.py",
        "place >= (ends - scored)[:, None]",
        "place >= (ends - scored - 1)[:, None]",
        ("tests/interop/test_lm_eval.py::test_log_likelihoods_are_sums_over_tokens",),
    ),
    Mutation(
        "a selected key that is masked counts with its score",
        "attn_jax/ops/partial.py",
        "        visible = visible & _at(allowed, slots)\n",
        "        visible = visible & jnp.ones_like(_at(allowed, slots))\n",
        (
            f"{PARTIAL}::test_every_mask_equals_the_oracle",
            f"{PARTIAL}::test_no_token_moves_what_came_before_it",
            f"{PARTIAL}::test_a_finite_key_moves_none_but_those_that_see_it",
        ),
    ),
    Mutation(
        "in packed rows every segment looks its keys up in the first",
        "attn_jax/nn/_partial_rows.py",
        "found = found & allowed[..., None, :]",
        "found = found & True",
        (
            "tests/nn/test_partial.py::test_positions_say_which_keys_are_selected",
            f"{LAYER}::test_packed_segments_equal_rows_of_their_own[partial]",
        ),
    ),
    Mutation(
        "a map that unrolled layers share is there for each of them",
        "attn_jax/models/stack.py",
        "            _tie(self.blocks)\n",
        "            pass\n",
        ("tests/nn/test_partial.py::test_a_shared_map_is_counted_once[False]",),
    ),
    Mutation(
        "pieces of a covariance added about means of their own",
        "attn_jax/analysis/eigen/covariance.py",
        "left, right = a.moved(mean), b.moved(mean)",
        "left, right = a, b",
        ("tests/analysis/test_eigen.py::test_pieces_give_the_covariance_of_the_whole",),
    ),
    Mutation(
        "greedy by what an entry explains of the others, not for its own variance",
        "attn_jax/analysis/eigen/selection.py",
        "gains / np.where(some, size, 1.0)",
        "gains",
        ("tests/analysis/test_eigen.py::test_greedy_equals_brute_force",),
    ),
    Mutation(
        "selected scores that a map reproduces but nearly",
        "attn_jax/analysis/eigen/reconstruction.py",
        "found[chosen[first], first] = 1.0",
        "found[chosen[first], first] = 0.999",
        (
            "tests/analysis/test_eigen.py::test_all_entries_reproduce_the_samples",
            "tests/analysis/test_eigen_scores.py"
            "::test_all_keys_of_each_row_rebuild_softmax_attention",
        ),
    ),
    Mutation(
        "components of long samples that are not centred",
        "attn_jax/analysis/eigen/spectra.py",
        "    x = x - x.mean(axis=0)\n",
        "    pass\n",
        (
            "tests/analysis/test_eigen.py"
            "::test_components_of_samples_come_from_the_smaller_matrix",
        ),
    ),
    Mutation(
        "projections of a file read as they stand there",
        "attn_jax/interop/_family.py",
        "return (array.T if self._turned(path) else array).reshape(shape)",
        "return array.reshape(shape)",
        (
            "tests/interop/test_huggingface.py"
            "::test_a_loaded_encoder_equals_an_independent_forward_pass",
        ),
    ),
    Mutation(
        "a schedule that starts at 0",
        "attn_jax/train/schedules.py",
        "        s = jnp.asarray(count, jnp.float32) + 1\n",
        "        s = jnp.asarray(count, jnp.float32)\n",
        ("tests/train/test_schedules.py::test_noam_has_the_rates_of_the_paper",),
    ),
    Mutation(
        "a device's own keys counted among the earlier ones",
        "attn_jax/ops/_linear_mesh.py",
        "    earlier = jnp.arange(len(some)) < jax.lax.axis_index(TOKENS)\n",
        "    earlier = jnp.arange(len(some)) <= jax.lax.axis_index(TOKENS)\n",
        (
            "tests/ops/test_mesh.py"
            "::test_shared_tokens_and_heads_give_the_same[linear-causal]",
        ),
    ),
    Mutation(
        "queries of every device at position 0",
        "attn_jax/ops/_mesh.py",
        "    return jax.lax.axis_index(TOKENS) * length\n",
        "    return 0 * jax.lax.axis_index(TOKENS) * length\n",
        (
            "tests/ops/test_mesh.py::test_shared_tokens_and_heads_give_the_same[softmax]",
        ),
    ),
    Mutation(
        "a state that a step lays out anew",
        "attn_jax/train/step.py",
        "        return constrain(state), metrics\n",
        "        return jax.tree.map(lambda x: x, state), metrics\n",
        (
            "tests/train/test_sharding.py"
            "::test_a_device_holds_the_bytes_that_the_table_says",
        ),
    ),
)

# What every run of the suite plants: quick ones, of two kinds of fault.
SAMPLE = tuple(
    each
    for each in MUTATIONS
    if each.name
    in (
        "a window one key short",
        "exclude_self by the root mean square, not the length",
    )
)


def main(words: Sequence[str]) -> int:
    """Plants what is asked for; the exit code is 1 where a fault goes unnoticed."""
    chosen = [
        each
        for each in MUTATIONS
        if not words or any(word in each.name for word in words)
    ]
    unnoticed = 0
    for mutation, wrong in plant(chosen):
        print(f"{'UNNOTICED' if wrong else 'noticed':9}  {mutation.name}", flush=True)
        if wrong:
            print(wrong, flush=True)
        unnoticed += bool(wrong)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} faults are noticed")
    return bool(unnoticed or not chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
