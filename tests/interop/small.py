"""A small encoder of the BERT family as a directory of files, written by an oracle."""

import json

import numpy as np
import tokenizers

from tests.interop import oracle_bert as oracle

VOCAB, LENGTH, LAYERS, M, HEADS, F, TYPES = 29, 11, 3, 12, 4, 20, 2
CONFIG = {
    "model_type": "bert",
    "vocab_size": VOCAB,
    "max_position_embeddings": LENGTH,
    "num_hidden_layers": LAYERS,
    "hidden_size": M,
    "num_attention_heads": HEADS,
    "intermediate_size": F,
    "type_vocab_size": TYPES,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", "good"]
WORDS += ["bad", "##ly", "made", "not", ".", "a", "an", "it", "is"]


def shapes():
    """What such a file holds, by name."""

    def linear(name, out, width):
        return {f"{name}.weight": (out, width), f"{name}.bias": (out,)}

    def norm(name):
        return {f"{name}.weight": (M,), f"{name}.bias": (M,)}

    found = {
        "embeddings.word_embeddings.weight": (VOCAB, M),
        "embeddings.position_embeddings.weight": (LENGTH, M),
        "embeddings.token_type_embeddings.weight": (TYPES, M),
    } | norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            found |= linear(f"{layer}.attention.{part}", M, M)
        found |= norm(f"{layer}.attention.output.LayerNorm")
        found |= linear(f"{layer}.intermediate.dense", F, M)
        found |= linear(f"{layer}.output.dense", M, F) | norm(
            f"{layer}.output.LayerNorm"
        )
    return found | linear("pooler.dense", M, M)


def drawn(names, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (0.4 * rng.normal(size=shape) + ("Norm.weight" in name)).astype("f4")
        for name, shape in names.items()
    }


def make(folder):
    """config.json, model.safetensors and tokenizer.json; the folder."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    oracle.write(folder / "model.safetensors", drawn(shapes()))
    made = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"
        )
    )
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(WORDS[:5])
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    # As the files of sentence encoders have it: all texts cut and padded alike.
    made.enable_truncation(6)
    made.enable_padding(length=6)
    made.save(str(folder / "tokenizer.json"))
    return folder
