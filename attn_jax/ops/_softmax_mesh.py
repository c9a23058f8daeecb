"""Softmax attention over a mesh: each device has its rows, its heads, its queries.

Rows and heads know nothing of each other. Along tokens, keys and values are brought
together by one all-gather, whose gradient is one reduce-scatter; a device's queries
then stand at an offset, and tiles that its mask rules out are not visited there either.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from attn_jax.ops._mask_rules import Dense, Padding, Prefix, Rule, Segments
from attn_jax.ops._mesh import Cut, cut, first_token, gather_tokens, on_each
from attn_jax.ops.masks import Mask
from attn_jax.ops.softmax_kernels import Call


def over_mesh(
    attend: Callable[[Call], Float[Array, "*b t h e"]], call: Call
) -> Float[Array, "*b t h e"]:
    """attend(call), in pieces where `jax.set_mesh` has a mesh that divides it."""
    if call.q.ndim != 4:
        return attend(call)
    (b, t), (s, g) = call.q.shape[:2], call.v.shape[1:3]
    ours = cut(rows=b, tokens=t, heads=g)
    if not any(ours):
        return attend(call)
    keys_too = bool(ours.tokens) and any(cut(tokens=s))
    mask = with_key_ids(call.mask)
    call = call._replace(mask=mask)

    def local(call: Call) -> Float[Array, "b t h e"]:
        if ours.tokens:
            call = call._replace(mask=call.mask.offset(first_token(call.q.shape[1])))
        if keys_too:
            k, v = (gather_tokens(x, 1) for x in (call.k, call.v))
            call = call._replace(k=k, v=v)
        return attend(call)

    queries: Any = ours.spec(call.q.shape, "tokens", "heads", "", b=b)
    keys: Any = ours.spec(call.v.shape, "tokens" if keys_too else "", "heads", "", b=b)
    bias = None
    if call.bias is not None:
        bias = ours.spec(call.bias.shape, "heads", "tokens", "", b=b)
    places = Call(
        queries,
        keys,
        keys,
        Mask(tuple(rule_spec(rule, ours, b) for rule in mask.rules)),
        bias,
        None if call.scale is None else PartitionSpec(),
        None if call.logit_cap is None else PartitionSpec(),
    )
    return on_each(local, ours, (places,), queries)(call)


def with_key_ids(mask: Mask) -> Mask:
    """The mask with keys named in its segments, since queries are about to be cut."""
    return Mask(
        tuple(
            Segments(rule.queries, rule.key_ids) if isinstance(rule, Segments) else rule
            for rule in mask.rules
        )
    )


def rule_spec(rule: Rule, ours: Cut, b: int, keys: str = "") -> Rule:
    """A rule with the places of its arrays instead of them.

    keys: "tokens" where keys are cut too.
    """
    if isinstance(rule, Padding | Segments):
        queries = rule.queries
        return type(rule)(
            queries=None
            if queries is None
            else ours.spec(queries.shape, "tokens", b=b),
            keys=None if rule.keys is None else ours.spec(rule.keys.shape, keys, b=b),
        )
    if isinstance(rule, Dense):
        return Dense(ours.spec(rule.array.shape, "heads", "tokens", "", b=b))
    if rule.start is not None:
        rule = replace(rule, start=ours.spec(rule.start.shape, b=b))
    if isinstance(rule, Prefix):
        rule = replace(rule, length=ours.spec(rule.length.shape, b=b))
    return rule
