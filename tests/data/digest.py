"""A program that prints one number for all sources of batches, without a network."""

import hashlib
import socket
import sys

from attn_jax import data


def digest() -> str:
    corpus = data.load_corpus()
    digest = hashlib.sha256(corpus.fingerprint.encode())
    for step in (0, 7):
        for batch in (
            data.window_batch(corpus.train, seed=1, step=step, batch_size=4, length=64),
            data.copy_batch(seed=1, step=step, batch_size=4),
            data.recall_batch(seed=1, step=step, batch_size=4),
        ):
            for array in batch:
                digest.update(array.tobytes())
    return digest.hexdigest()


def refuse(*_: object, **__: object) -> None:
    raise OSError("the network was asked")


if __name__ == "__main__":
    socket.socket.connect = refuse
    socket.getaddrinfo = refuse
    print(digest())
    heavy = {"tensorflow", "tensorflow_datasets", "torch", "grain", "flax"}
    sys.exit(f"imported {heavy & set(sys.modules)}" if heavy & set(sys.modules) else 0)
