"""BERT from a file's own arrays: NumPy, float64, written from Devlin et al. 2019.

`arrays` are those of a safetensors file, by their names there, read here byte by byte;
weights are (out, in). Nothing of the library takes part.
"""

import json
import math
import struct

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}
ERF = np.vectorize(math.erf, otypes=[np.float64])


def read(path):
    """{name: array in float64} of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = (8 + length + n for n in entry["data_offsets"])
        array = np.frombuffer(content[begin:end], DTYPES[entry["dtype"]])
        found[name] = array.reshape(entry["shape"]).astype(np.float64)
    return found


def write(path, arrays):
    """A safetensors file of float32 arrays, one after the other."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        content = np.ascontiguousarray(array, "<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(np.shape(array)),
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def linear(arrays, name, x):
    return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]


def norm(arrays, name, x, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + epsilon)
    return scaled * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def gelu(x):
    return x * (1 + ERF(x / math.sqrt(2))) / 2


def attend(arrays, name, x, heads, real):
    """Each head of each row; a padded key is not there."""
    width = x.shape[-1] // heads
    q, k, v = (linear(arrays, f"{name}.self.{p}", x) for p in ("query", "key", "value"))
    out = np.zeros_like(x)
    for row, head in np.ndindex(len(x), heads):
        at = slice(head * width, (head + 1) * width)
        keys = real[row]
        scores = q[row, :, at] @ k[row, keys, at].T / math.sqrt(width)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[row, :, at] = weights @ v[row, keys, at]
    return linear(arrays, f"{name}.output.dense", out)


def encoder(arrays, tokens, types, real, *, heads, epsilon=1e-12):
    """One vector a token; what stands at padding has no meaning."""
    positions = np.arange(tokens.shape[1])
    table = "embeddings.{}_embeddings.weight".format
    x = arrays[table("word")][tokens] + arrays[table("position")][positions][None]
    x = x + arrays[table("token_type")][types]
    x = norm(arrays, "embeddings.LayerNorm", x, epsilon)
    i = 0
    while f"encoder.layer.{i}.output.dense.weight" in arrays:
        layer = f"encoder.layer.{i}"
        y = attend(arrays, f"{layer}.attention", x, heads, real)
        x = norm(arrays, f"{layer}.attention.output.LayerNorm", x + y, epsilon)
        y = gelu(linear(arrays, f"{layer}.intermediate.dense", x))
        y = linear(arrays, f"{layer}.output.dense", y)
        x = norm(arrays, f"{layer}.output.LayerNorm", x + y, epsilon)
        i += 1
    return x


def sentence(x, real):
    """The mean of the real tokens' vectors, of length 1."""
    mean = (x * real[..., None]).sum(axis=1) / real.sum(axis=1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)
