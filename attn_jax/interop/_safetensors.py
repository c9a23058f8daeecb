"""Files of named arrays in the format "safetensors".

8 bytes   length of the header, little-endian
header    JSON: {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
the rest  the arrays, little-endian, row after row, at these offsets
"""

import json
import math
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
PREFIX = 8
METADATA = "__metadata__"


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, which are read from it when they are used.

    Raises:
      ValueError: no such file, or one that says of itself what isn't so.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(PREFIX), "little")
            if size < PREFIX or length > size - PREFIX:
                _refuse(path, f"{size} bytes, with a header of {length}")
            header = json.loads(file.read(length))
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); expected a safetensors file"
        ) from error
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            _refuse(path, f"a header that is no JSON ({error})")
        raise
    start = PREFIX + length
    content = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    found, spans = {}, []
    for name, entry in header.items():
        if name == METADATA:
            continue
        try:
            dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            _refuse(path, f"{name} described as {entry}")
        if not 0 <= begin <= end <= size - start:
            _refuse(path, f"{name} at {begin} to {end} of {size - start} bytes")
        if end - begin != math.prod(shape) * dtype.itemsize:
            _refuse(path, f"{name} of shape {shape} in {end - begin} bytes")
        found[name] = content[start + begin : start + end].view(dtype).reshape(shape)
        spans.append((begin, end, name))
    for (_, end, one), (begin, _, other) in pairwise(sorted(spans)):
        if begin < end:
            _refuse(path, f"{one} and {other} in the same bytes")
    return found


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file, whole or not at all."""
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    place = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % PREFIX)
    scratch = path.with_name(f"{path.name}.tmp")
    with scratch.open("wb") as file:
        file.write(len(text).to_bytes(PREFIX, "little"))
        file.write(text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())
    os.replace(scratch, path)


def _refuse(path: Path, what: str) -> NoReturn:
    raise ValueError(
        f"{path}: got {what}; expected a safetensors file; it may have been cut short "
        "on its way here"
    )
