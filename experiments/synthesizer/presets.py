"""The studies at sizes for two cores, and tasks of the paper for an accelerator."""

from dataclasses import replace

from experiments.common.fields import by_name
from experiments.synthesizer.config import (
    ROWS,
    ClassificationStudy,
    LanguageStudy,
    SpeedStudy,
    Study,
    TranslationStudy,
)

_BYTES = LanguageStudy(preset="lm-bytes", batch_size=16, steps=1500, eval_every=250)
_PIECES = replace(
    _BYTES, preset="lm-subwords", vocab_size=1024, steps=1000, eval_every=200
)

# Data sets of tensorflow-datasets, and which of their features are the texts. Left out:
# glue/stsb, whose labels are numbers; super_glue/record, whose answers are spans; and
# sets that are only tested on.
TASKS = {
    "glue-cola": ("glue/cola", ("sentence",)),
    "glue-sst2": ("glue/sst2", ("sentence",)),
    "glue-mrpc": ("glue/mrpc", ("sentence1", "sentence2")),
    "glue-qqp": ("glue/qqp", ("question1", "question2")),
    "glue-mnli": ("glue/mnli", ("premise", "hypothesis")),
    "glue-qnli": ("glue/qnli", ("question", "sentence")),
    "glue-rte": ("glue/rte", ("sentence1", "sentence2")),
    "glue-wnli": ("glue/wnli", ("sentence1", "sentence2")),
    "superglue-boolq": ("super_glue/boolq", ("question", "passage")),
    "superglue-cb": ("super_glue/cb", ("premise", "hypothesis")),
    "superglue-copa": (
        "super_glue/copa",
        ("question", "premise", "choice1", "choice2"),
    ),
    "superglue-multirc": ("super_glue/multirc", ("question", "answer", "paragraph")),
    "superglue-rte": ("super_glue/rte", ("premise", "hypothesis")),
    "superglue-wic": ("super_glue/wic", ("word", "sentence1", "sentence2")),
    "superglue-wsc": ("super_glue/wsc.fixed", ("span1_text", "span2_text", "text")),
    "ag-news": ("ag_news_subset", ("title", "description")),
    "imdb": ("imdb_reviews/plain_text", ("text",)),
}
# Where the split to test on isn't called "validation".
TESTED_ON = {"glue-mnli": "validation_matched", "ag-news": "test", "imdb": "test"}

# Trained on the task alone, while the paper's models first read C4.
_TASK = ClassificationStudy(
    vocab_size=16_000,
    length=256,
    steps=10_000,
    batch_size=64,
    num_layers=6,
    d_model=512,
    num_heads=8,
    d_ff=2048,
    learning_rate=3e-4,
    checkpoint_every=1000,
    log_every=50,
    eval_every=1000,
)


def _task(preset: str) -> ClassificationStudy:
    name, features = TASKS[preset]
    tested_on = TESTED_ON.get(preset, "validation")
    splits = (*_TASK.splits[:2], tested_on)
    return replace(_TASK, preset=preset, tfds=name, features=features, splits=splits)


PRESETS: dict[str, Study] = by_name(
    # A few seconds: to see that everything works.
    replace(
        _BYTES,
        preset="smoke",
        rows=("softmax", "random+dense"),
        seeds=2,
        steps=20,
        checkpoint_every=10,
        log_every=5,
        eval_every=10,
        batch_size=4,
        length=32,
        num_layers=1,
        d_model=32,
        d_ff=64,
        validation_bytes=4096,
    ),
    _BYTES,
    _PIECES,
    TranslationStudy(
        preset="translation",
        vocab_size=2000,
        max_length=24,
        max_tokens=1536,
        steps=700,
        num_layers=2,
        d_model=96,
        num_heads=4,
        d_ff=256,
        dropout_rate=0.0,
        norm_placement="pre",
        warmup_steps=150,
        average=4,
        extra_length=8,
        checkpoint_every=50,
        log_every=10,
        eval_every=100,
        eval_sentences=32,
    ),
    ClassificationStudy(preset="snippets", rows=(*ROWS, "factorized_random+softmax")),
    replace(
        _BYTES,
        preset="heads",
        rows=tuple(f"{row}@{n}" for row in ("random", "dense") for n in (2, 4, 8, 16)),
        steps=800,
        eval_every=200,
    ),
    SpeedStudy(preset="speed"),
    replace(
        _PIECES,
        preset="lm1b",
        tfds="lm1b",
        vocab_size=32_000,
        steps=100_000,
        checkpoint_every=1000,
        log_every=50,
        eval_every=1000,
        batch_size=128,
        length=256,
        num_layers=6,
        d_model=512,
        num_heads=8,
        d_ff=2048,
        embedding_scale=512**0.5,
        learning_rate=5e-4,
        validation_bytes=1 << 20,
    ),
    TranslationStudy(
        preset="cnn-dailymail",
        tfds="cnn_dailymail",
        source="article",
        target="highlights",
        cut_sources=True,
        vocab_size=32_000,
        max_length=512,
        test_sentences=1000,
    ),
    *map(_task, TASKS),
)
