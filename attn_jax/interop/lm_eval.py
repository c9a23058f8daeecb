r"""Any Decoder in EleutherAI's evaluation harness, `lm-eval`.

    python -m attn_jax.interop.lm_eval --model attn_jax \
        --model_args checkpoint=DIR,config=FILE,vocabulary=FILE \
        --tasks hellaswag,piqa --batch_size 8 --output_path results

is the harness's own command with one model more; everything behind it is the harness's.
In a program, `harness_model(decoder, tokenizer)` is what `lm_eval.simple_evaluate`
takes as its model.
"""

import functools
from typing import Any

from attn_jax.data import load_vocabulary
from attn_jax.interop._answers import ByteTokenizer, EvaluatedDecoder, Tokenizer
from attn_jax.interop.decoder_files import load_config, load_decoder
from attn_jax.interop.model_files import load_model

__all__ = [
    "ByteTokenizer",
    "EvaluatedDecoder",
    "Tokenizer",
    "evaluated_checkpoint",
    "harness_model",
    "main",
    "register",
]

NAME = "attn_jax"


def harness_model(decoder: Any, tokenizer: Tokenizer, **options: Any) -> Any:
    """An `EvaluatedDecoder` that the harness knows as one of its models.

        lm_eval.simple_evaluate(harness_model(decoder, vocabulary), tasks=["piqa"])

    Args:
      decoder, tokenizer, options: as for `EvaluatedDecoder`.

    Raises:
      ImportError: the extra `eval` isn't installed.
    """
    return _harness_class()(decoder, tokenizer, **options)


def evaluated_checkpoint(
    checkpoint: str,
    vocabulary: str,
    config: str | None = None,
    *,
    step: int | None = None,
    prefix_id: int | None = None,
    batch_size: int | str = 8,
) -> Any:
    """A `harness_model` from files; the arguments are those of `--model_args`.

    Args:
      checkpoint: the directory with a run's checkpoints.
      vocabulary: a file that `Vocabulary.save` wrote, or "bytes", of which a line end
        is the prefix.
      config: the decoder's, as `load_config` takes it: a file or a preset. None: the
        checkpoint is a directory that `load_model` reads.
      step: of the checkpoint; None is the latest.
      prefix_id, batch_size: as for `EvaluatedDecoder`.
    """
    if config is None:
        decoder = load_model(checkpoint)
    else:
        decoder = load_decoder(checkpoint, load_config(config), step=step)
    tokenizer: Tokenizer
    if vocabulary == "bytes":
        tokenizer = ByteTokenizer()
        prefix_id = ord("\n") if prefix_id is None else prefix_id
    else:
        tokenizer = load_vocabulary(vocabulary)
    if isinstance(batch_size, str) and batch_size.isdecimal():
        batch_size = int(batch_size)
    return harness_model(decoder, tokenizer, batch_size=batch_size, prefix_id=prefix_id)


def main() -> None:
    """The harness's command line, which also knows the model "attn_jax"."""
    register()
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


def register() -> None:
    """Make the harness know the model "attn_jax" by name."""
    kind = _harness_class()
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        import lm_eval.models  # noqa: F401  its models stay known beside this one

        model_registry.register(NAME, target=kind)


@functools.cache
def _harness_class() -> Any:
    """The class of such models, which exists once the harness is imported."""
    try:
        from lm_eval.api.model import LM
    except ImportError as error:
        raise ImportError(
            "Evaluation needs the package lm-eval: pip install 'attn_jax[eval]'"
        ) from error

    class HarnessDecoder(EvaluatedDecoder, LM):
        def __init__(self, *args: Any, **options: Any) -> None:
            LM.__init__(self)
            EvaluatedDecoder.__init__(self, *args, **options)

        @classmethod
        def create_from_arg_obj(
            cls, arg_dict: Any, additional_config: Any = None
        ) -> Any:
            # The device and the greatest batch are JAX's and the decoder's own matter.
            batch_size = (additional_config or {}).get("batch_size")
            given = {} if batch_size is None else {"batch_size": batch_size}
            return evaluated_checkpoint(**{**given, **arg_dict})

        @classmethod
        def create_from_arg_string(
            cls, arg_string: str, additional_config: Any = None
        ) -> Any:
            from lm_eval.utils import simple_parse_args_string

            given = simple_parse_args_string(arg_string)
            return cls.create_from_arg_obj(given, additional_config)

    return HarnessDecoder


if __name__ == "__main__":
    main()
