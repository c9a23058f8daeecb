"""What the evaluation harness asks of a language model, answered by a Decoder."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from attn_jax.data import decode_text, encode_text
from attn_jax.data._checks import fail, integer
from attn_jax.decoding import greedy
from attn_jax.interop._scores import Score, Span, by_length, score, windows

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_MAX_GENERATED = 256  # the harness's own default


@runtime_checkable
class Tokenizer(Protocol):
    """What turns text into ids and back, such as `attn_jax.data.Vocabulary`.

    size: how many ids there are.
    eos_id: the id that ends a text; None where there is none.
    """

    @property
    def size(self) -> int: ...

    @property
    def eos_id(self) -> int | None: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Any) -> str: ...


class ByteTokenizer:
    """Text as its UTF-8 bytes, for models of bytes."""

    size = 256
    eos_id = None

    def encode(self, text: str) -> list[int]:
        return encode_text(text).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return decode_text(np.asarray(ids, np.int32))


class EvaluatedDecoder:
    """The three questions that the harness asks, answered by a Decoder.

    A request is anything whose `args` hold the texts. Requests are sorted by length and
    read in batches of one shape; answers come in the order of the requests.

    Args:
      decoder: a causal language model.
      tokenizer: of the text it was trained on.
      batch_size: rows of the decoder's max_length that are read at once; of shorter
        ones, as many more as have no more tokens together.
      prefix_id: the token that a text without context follows; None is the tokenizer's
        eos_id, which stands before every document of token shards.

    Raises:
      ValueError: the tokenizer has more ids than the decoder, or there is no prefix_id.
    """

    def __init__(
        self,
        decoder: Any,
        tokenizer: Tokenizer,
        *,
        batch_size: int = 8,
        prefix_id: int | None = None,
    ) -> None:
        vocab_size = decoder.config.vocab_size
        if tokenizer.size > vocab_size:
            fail(
                "tokenizer",
                f"one of {tokenizer.size} ids",
                f"at most {vocab_size}, the decoder's vocab_size",
                "pass the one that the decoder was trained with",
            )
        prefix = tokenizer.eos_id if prefix_id is None else prefix_id
        if prefix is None or not 0 <= prefix < vocab_size:
            expected = f"a token from 0 to {vocab_size - 1} that a text may follow"
            remedy = "pass that of a line end, say, for a tokenizer without eos_id"
            fail("prefix_id", repr(prefix), expected, remedy)
        self.decoder, self.tokenizer, self.prefix_id = decoder, tokenizer, prefix
        self.batch_size = integer("batch_size", batch_size, minimum=1)

    @property
    def max_length(self) -> int:
        """The most tokens that the decoder reads at once."""
        return self.decoder.config.max_length

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """log p(continuation | context) of each request, and whether it is greedy.

        Blanks at the end of a context belong to the continuation. Where both are longer
        than the decoder reads, the context loses its beginning.

        Raises:
          ValueError: a continuation alone is longer than max_length.
        """
        spans = [self._span(*request.args) for request in requests]
        return [(each.log_p, each.greedy) for each in self._score(spans)]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """log p of each text, behind the prefix, whatever its length."""
        spans, owners = [], []
        for number, request in enumerate(requests):
            (text,) = request.args
            tokens = self.tokenizer.encode(text)
            for span in windows(tokens, self.prefix_id, self.max_length):
                spans.append(span)
                owners.append(number)
        totals = [0.0] * len(requests)
        for owner, each in zip(owners, self._score(spans), strict=True):
            totals[owner] += each.log_p
        return totals

    def generate_until(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[str]:
        """The greedy continuation of each context, up to the first of some strings.

        Where a context and what may be written are longer than the decoder reads, the
        context loses its beginning.

        Raises:
          ValueError: a request wants samples, or leaves no room for a context.
        """
        wanted = [self._generation(*request.args) for request in requests]
        texts = [""] * len(wanted)
        for most in sorted({most for _, most, _ in wanted}):
            numbers = [i for i, (_, one, _) in enumerate(wanted) if one == most]
            written = self._write([wanted[i][0] for i in numbers], most)
            for i, text in zip(numbers, written, strict=True):
                texts[i] = _until(text, wanted[i][2])
        return texts

    def _score(self, spans: Sequence[Span]) -> list[Score]:
        return score(self.decoder, spans, batch_size=self.batch_size)

    def _span(self, context: str, continuation: str) -> Span:
        """The tokens of both, as one text where there is a context."""
        kept = context.rstrip()
        if kept:
            whole = self.tokenizer.encode(context + continuation)
            before = len(self.tokenizer.encode(kept))
        else:
            whole = [self.prefix_id, *self.tokenizer.encode(context + continuation)]
            before = 1
        scored = len(whole) - before
        if scored > self.max_length:
            fail(
                "continuation",
                f"{scored} tokens ({continuation[:40]!r} ...)",
                f"at most {self.max_length}, the decoder's max_length",
                "leave such a task out, or evaluate a decoder that reads more",
            )
        return Span(whole[-self.max_length - 1 :], max(scored, 0))

    def _generation(
        self, context: str, options: Mapping[str, Any]
    ) -> tuple[list[int], int, list[str]]:
        """The prompt, how much is written at most, and what ends it."""
        if options.get("do_sample") or (
            "do_sample" not in options and options.get("temperature", 0)
        ):
            remedy = "set do_sample: false in the generation_kwargs of the task"
            fail("generation_kwargs", f"{dict(options)}", "no sampling", remedy)
        lengths = [options[name] for name in _LENGTHS if name in options]
        most = integer("max_gen_toks", [*lengths, _MAX_GENERATED][0], minimum=1)
        if most >= self.max_length:
            fail(
                "max_gen_toks",
                str(most),
                f"less than {self.max_length}, the decoder's max_length, so that there "
                "is room for a context",
                "pass --gen_kwargs max_gen_toks=N",
            )
        until = options.get("until") or []
        prompt = self.tokenizer.encode(context) or [self.prefix_id]
        prompt = prompt[-(self.max_length - most) :]
        return prompt, most, [until] if isinstance(until, str) else list(until)

    def _write(self, prompts: list[list[int]], most: int) -> list[str]:
        """The greedy continuations of prompts, of so many tokens at most."""
        texts = [""] * len(prompts)
        lengths = [len(prompt) for prompt in prompts]
        limit, eos_id = self.max_length - most, self.tokenizer.eos_id
        for length, rows, indices in by_length(lengths, limit, self.batch_size):
            tokens = np.full((rows, length), self.prefix_id, np.int32)
            valid = np.zeros((rows, length), bool)
            valid[len(indices) :, 0] = True  # a row has a token to go on from
            for row, i in enumerate(indices):
                tokens[row, : lengths[i]] = prompts[i]
                valid[row, : lengths[i]] = True
            written = greedy(
                self.decoder, tokens, max_length=most, eos_id=eos_id, valid=valid
            )
            for row, i in enumerate(indices):
                texts[i] = self._text(np.asarray(written[row]).tolist())
        return texts

    def _text(self, ids: list[int]) -> str:
        """The text of ids up to eos; one beyond the tokenizer's stands for no text."""
        if self.tokenizer.eos_id in ids:
            ids = ids[: ids.index(self.tokenizer.eos_id)]
        return self.tokenizer.decode([i for i in ids if i < self.tokenizer.size])


def _until(text: str, ends: list[str]) -> str:
    """The text before the first of these strings that is in it."""
    places = [text.find(end) for end in ends if end and end in text]
    return text[: min(places)] if places else text
