"""Arrays of bytes from idx files, the format of MNIST."""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from attn_jax.data._checks import fail
from attn_jax.data._files import read_file

_TYPES = {
    0x08: "unsigned bytes",
    0x09: "signed bytes",
    0x0B: "16-bit integers",
    0x0C: "32-bit integers",
    0x0D: "32-bit floats",
    0x0E: "64-bit floats",
}
_BYTES = 0x08
_AGAIN = "get the file again"


def read_idx(path: str | os.PathLike[str]) -> UInt8[np.ndarray, "..."]:
    """The array of bytes in an idx file, packed with gzip or not.

        2 bytes 0, type, number of axes;  size of each axis, 4 bytes, big-endian;  data

    Args:
        path: the file. Whether it is packed is seen from what it holds.

    Returns:
        The array, read-only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it can't be read, isn't an idx file of bytes, or is shorter or
            longer than its header says.
    """
    where = Path(os.path.expanduser(path))
    content = _unpacked(where, read_file("path", where))
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        got = f"{where}, which begins with {content[:4].hex(' ') or 'nothing'}"
        expected = "an idx file: two bytes 0, a type from 08 to 0e, the number of axes"
        fail("path", got, expected, "pass one, such as train-images-idx3-ubyte.gz")
    if content[2] != _BYTES:
        got = f"{where}, which holds {_TYPES[content[2]]}"
        fail("path", got, _TYPES[_BYTES], "pass the file of the images")
    start = 4 + 4 * content[3]
    if len(content) < start:
        got = f"{where}, whose header ends after {len(content)} bytes"
        fail("path", got, f"{start} bytes, for {content[3]} axes", _AGAIN)
    shape = tuple(np.frombuffer(content, ">u4", content[3], offset=4).tolist())
    there, expected = len(content) - start, math.prod(shape)
    if there != expected:
        sizes = " x ".join(map(str, shape))
        got = f"{where}, with {there:,} bytes of data"
        fail("path", got, f"{sizes} = {expected:,}, as its header says", _AGAIN)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _unpacked(where: Path, content: bytes) -> bytes:
    """The bytes of a file, those inside where gzip packed them."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        got = f"{where}, which can't be unpacked ({error})"
        fail("path", got, "a whole gzip file", _AGAIN)
