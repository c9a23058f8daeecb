"""A training step of a small decoder, beside the same model in PyTorch."""

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from attn_jax.data import Batch
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.train import (
    TrainState,
    TrainStep,
    adamw,
    cross_entropy,
    init_train_state,
    make_train_step,
)
from benchmarks import clock
from benchmarks.worker import Worker

RATE = 3e-4
TORCH = "benchmarks.peers.torch_decoder:training_step"


@dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """The decoder that is trained, and its batch."""

    num_layers: int = 4
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    vocab_size: int = 256
    batch: int = 4
    length: int = 512

    def config(self, **others: Any) -> DecoderConfig:
        return DecoderConfig(
            vocab_size=self.vocab_size,
            max_length=self.length,
            num_layers=self.num_layers,
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_ff=self.d_ff,
            **others,
        )

    def tokens(self) -> Batch:
        """Random bytes: what they say doesn't matter to the clock."""
        shape = (self.batch, self.length + 1)
        numbers = np.random.default_rng(0).integers(0, self.vocab_size, shape, np.int32)
        weights = np.ones((self.batch, self.length), np.float32)
        return Batch(numbers[:, :-1].copy(), numbers[:, 1:].copy(), weights)


SIZES = {
    "full": TrainingSize(),
    "quick": TrainingSize(
        num_layers=1, d_model=16, num_heads=2, d_ff=32, batch=2, length=16
    ),
}


class Training:
    """Our step with its state, which a call moves on."""

    def __init__(self, size: TrainingSize, **others: Any):
        graph, params = nnx.split(Decoder(size.config(**others), rngs=nnx.Rngs(0)))
        optimizer = adamw(RATE)

        def loss(params: Any, batch: Batch, rng: Any) -> Any:
            logits = nnx.merge(graph, params)(batch.tokens)
            return cross_entropy(logits, batch.targets, weights=batch.weights)

        self.loss = loss
        self.batch = jax.device_put(size.tokens())
        self.state: TrainState = init_train_state(params, optimizer, seed=0)
        self.step: TrainStep = make_train_step(loss, optimizer, schedule=RATE)

    def __call__(self) -> Any:
        self.state, metrics = self.step(self.state, self.batch)
        return jax.block_until_ready((self.state, metrics))


def compare(size: TrainingSize, rounds: int, torch: bool) -> dict[str, Any]:
    """Seconds a step, ours and PyTorch's, in turns; and that they train one model."""
    ours = Training(size)
    first, weight = jax.jit(ours.loss)(ours.state.params, ours.batch, None)
    parameters = sum(x.size for x in jax.tree.leaves(ours.state.params))
    facts = {"attn_jax": {"parameters": parameters, "loss": float(first / weight)}}
    # The weights leave before a step gives their memory away.
    weights, batch = torch_weights(ours.state.params), size.tokens()
    unrolled = Training(size, scan_layers=False)
    turns = {
        "attn_jax": clock.local(ours),
        "attn_jax, layers unrolled": clock.local(unrolled),
    }
    with contextlib.ExitStack() as stack:
        if torch:
            worker = stack.enter_context(Worker())
            for name, compiled in (("torch eager", False), ("torch compiled", True)):
                arguments = (torch_sizes(size), weights, *batch[:2], compiled)
                facts[name] = worker.build(name, TORCH, *arguments)
                turns[name] = worker.turn(name)
                _require_alike(facts, name)
        samples = clock.interleave(turns, rounds=rounds)
    return {
        "size": asdict(size),
        "tokens": batch.tokens.size,
        "models": facts,
        "samples": samples,
    }


def torch_sizes(size: TrainingSize) -> dict[str, int]:
    return {
        "vocab": size.vocab_size,
        "length": size.length,
        "layers": size.num_layers,
        "m": size.d_model,
        "heads": size.num_heads,
        "d_ff": size.d_ff,
    }


def torch_weights(params: Any) -> dict[str, np.ndarray]:
    """The parameters by the names of PyTorch's model, matrices as inputs x outputs."""
    stack = params["stack"]
    blocks = stack["blocks"]
    attention, forward = blocks["attention"], blocks["forward"]
    pair = attention["mechanism"]["query_key"]
    layers, m = blocks["attention_norm"]["scale"][...].shape

    def matrix(kernel: Any) -> Any:
        return kernel[...].reshape(layers, m, -1)

    found = {
        "embedding": params["embedding"]["embedding"][...],
        "norm": stack["norm"]["scale"][...],
        "attention_norm": blocks["attention_norm"]["scale"][...],
        "forward_norm": blocks["forward_norm"]["scale"][...],
        "qkv": jnp.concatenate(
            [
                matrix(part["kernel"])
                for part in (pair["query"], pair["key"], attention["value"])
            ],
            axis=-1,
        ),
        "output": attention["output"]["kernel"][...].reshape(layers, -1, m),
        "up": forward["up"]["kernel"][...],
        "down": forward["down"]["kernel"][...],
    }
    return {name: np.array(value) for name, value in found.items()}


def _require_alike(facts: dict[str, Any], name: str) -> None:
    """Raise unless both models have as many parameters and the same first loss."""
    ours, theirs = facts["attn_jax"], facts[name]
    same = ours["parameters"] == theirs["parameters"]
    if not same or abs(ours["loss"] - theirs["loss"]) > 1e-5 * ours["loss"]:
        raise RuntimeError(
            f"{name}: got {theirs}; expected the model of attn_jax, {ours}; one of the "
            "two was changed alone"
        )
