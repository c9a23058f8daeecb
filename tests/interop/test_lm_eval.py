"""A Decoder in the evaluation harness: its answers are those of token-by-token sums."""

import json
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from attn_jax.data import Vocabulary
from attn_jax.interop import lm_eval as adapter
from attn_jax.interop._scores import Span, by_length, windows
from attn_jax.interop.decoder_files import save_config
from attn_jax.interop.model_files import save_model
from attn_jax.models import Decoder, DecoderConfig
from attn_jax.train import Checkpointer, adamw, init_train_state
from tests.interop.test_gpt2 import assert_same

LENGTH, NEWLINE = 24, 10
CONFIG = DecoderConfig(
    vocab_size=256,
    max_length=LENGTH,
    num_layers=1,
    d_model=16,
    num_heads=2,
    embedding_scale=40.0,
)
QUESTIONS = [
    {"question": "Ann has a", "choices": ["cat", "dog", "horse"], "answer": 0},
    {"question": "Bob ", "choices": ["runs fast", "is"], "answer": 1},
    {"question": "A question that is cut", "choices": ["yes it is", "no"], "answer": 0},
    {"question": "2 + 2 =", "choices": ["5", "4", "22", "four"], "answer": 1},
    {"question": "Öl", "choices": ["ist flüssig", "x"], "answer": 0},
]
TASKS = {
    "tiny_choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "tiny_perplexity": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}} {{question}}"
metric_list: [{metric: byte_perplexity}]
""",
    "tiny_writing": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "none"
generation_kwargs: {until: ["Q"], max_gen_toks: 6}
metric_list: [{metric: exact_match}]
""",
}


@pytest.fixture(scope="module")
def decoder():
    return Decoder(CONFIG, rngs=nnx.Rngs(5))


@pytest.fixture(scope="module")
def model(decoder):
    return adapter.EvaluatedDecoder(
        decoder, adapter.ByteTokenizer(), batch_size=2, prefix_id=NEWLINE
    )


@pytest.fixture(scope="module")
def reads(decoder):
    """Logits after each token of a list, one after another, in float64."""
    graph, state = nnx.split(decoder)

    @jax.jit
    def step(token, cache):
        logits, cache = nnx.merge(graph, state).decode(token, cache)
        return logits[0, 0], cache

    def reads(tokens):
        cache, found = decoder.init_cache(1, LENGTH), []
        for token in tokens:
            logits, cache = step(jnp.array([[token]]), cache)
            found.append(np.asarray(logits, np.float64))
        return found

    return reads


@pytest.fixture(scope="module")
def log_p(reads):
    """log p of the last tokens given those before, and whether each is likeliest."""

    def log_p(tokens, scored):
        total, best = 0.0, True
        for logits, target in list(zip(reads(tokens[:-1]), tokens[1:], strict=True))[
            len(tokens) - 1 - scored :
        ]:
            top = logits.max()
            total += logits[target] - top - np.log(np.exp(logits - top).sum())
            best &= bool(logits.argmax() == target)
        return total, best

    return log_p


def request(*args):
    return SimpleNamespace(args=args)


def conditional(log_p, context, continuation):
    """The same by hand: bytes, the prefix for want of a context, its end if long."""
    blanks = len(context) - len(context.rstrip())
    whole, scored = (context + continuation).encode(), continuation.encode()
    before = [] if context.strip() else [NEWLINE]
    return log_p([*before, *whole][-LENGTH - 1 :], len(scored) + blanks)


def test_log_likelihoods_are_sums_over_tokens(model, reads, log_p):
    pairs = [
        (each["question"], f" {choice}")
        for each in QUESTIONS
        for choice in each["choices"]
    ]
    likeliest = chr(int(reads([65, 66])[-1].argmax()))
    assert likeliest.isascii()
    pairs += [("", "a text"), ("a context", ""), ("x" * 99, "y" * LENGTH)]
    pairs += [("AB", likeliest)]
    found = model.loglikelihood([request(*pair) for pair in pairs])
    wanted = [conditional(log_p, *pair) for pair in pairs]
    np.testing.assert_allclose(
        [each[0] for each in found], [each[0] for each in wanted], rtol=2e-5
    )
    greedy = [each[1] for each in found]
    assert greedy == [each[1] for each in wanted]
    assert greedy[-1]
    assert not all(greedy)


def test_blanks_between_context_and_continuation_belong_to_the_latter():
    """As the harness has it, so that words begin with their blank."""
    vocabulary = Vocabulary([("Ġ", "w"), ("Ġw", "o")])
    decoder = SimpleNamespace(config=SimpleNamespace(vocab_size=300, max_length=LENGTH))
    model = adapter.EvaluatedDecoder(decoder, vocabulary)
    span = model._span("a b ", "wo")
    assert span == Span(vocabulary.encode("a b wo"), 1)
    assert model._span("a b", " wo") == span
    blank = model._span("  ", "wo")
    assert blank == Span([vocabulary.eos_id, *vocabulary.encode("  wo")], 2)


def test_every_token_of_a_long_text_is_scored_once(model, log_p):
    texts = [
        "",
        "a",
        "bb",
        "b" * LENGTH,
        "The quick brown fox jumps over the lazy dog." * 2,
    ]
    found = model.loglikelihood_rolling([request(text) for text in texts])
    wanted = []
    for text in texts:
        tokens, total = [NEWLINE, *text.encode()], 0.0
        for end in range(LENGTH, len(tokens) + LENGTH, LENGTH):
            scored = min(LENGTH, len(tokens) - 1 - (end - LENGTH))
            stop = end - LENGTH + scored + 1
            read = tokens[max(stop - LENGTH - 1, 0) : stop]
            total += log_p(read, scored)[0] if scored > 0 else 0.0
        wanted.append(total)
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    spans = list(windows(list(range(10)), -1, 4))
    assert spans == [
        Span([-1, 0, 1, 2, 3], 4),
        Span([3, 4, 5, 6, 7], 4),
        Span([5, 6, 7, 8, 9], 2),
    ]


def test_what_is_written_is_greedy_and_ends_at_a_string(model, reads):
    contexts = ["Ann has a", "", "x" * 40, "Öl"]
    options = {"max_gen_toks": 6, "do_sample": False}
    requests = [request(text, options) for text in contexts]
    found = model.generate_until(requests)
    for context, text in zip(contexts, found, strict=True):
        tokens = (list(context.encode()) or [NEWLINE])[-(LENGTH - 6) :]
        for _ in range(6):
            tokens.append(int(reads(tokens)[-1].argmax()))
        assert text == bytes(tokens[-6:]).decode(errors="replace")
    last = found[0][-1]
    stops = request(contexts[0], {"until": ["never", last], "max_gen_toks": 6})
    cut, *rest = model.generate_until([stops, *requests[1:]])
    assert cut == found[0][: found[0].index(last)]
    assert rest == found[1:]


def test_ids_of_no_text_and_eos(model):
    vocabulary = Vocabulary([])
    decoder = SimpleNamespace(config=SimpleNamespace(vocab_size=300, max_length=LENGTH))
    evaluated = adapter.EvaluatedDecoder(decoder, vocabulary)
    assert evaluated.prefix_id == vocabulary.eos_id
    ids = vocabulary.encode("ab")
    assert evaluated._text([ids[0], 280, ids[1], vocabulary.eos_id, *ids, 0]) == "ab"


def test_texts_of_about_one_length_go_together():
    lengths = [3, 200, 16, 17, 5, 199, 1, 0]
    chunks = list(by_length(lengths, 256, 1))
    assert sorted(i for chunk in chunks for i in chunk.indices) == list(range(8))
    assert [chunk.length for chunk in chunks] == sorted(
        (chunk.length for chunk in chunks), reverse=True
    )
    for chunk in chunks:
        assert len(chunk.indices) <= chunk.rows
        assert chunk.rows * chunk.length <= 256
        assert all(lengths[i] <= chunk.length for i in chunk.indices)
    assert len({(chunk.length, chunk.rows) for chunk in chunks}) == 3
    with pytest.raises(ValueError, match="got 257; expected at most 256"):
        list(by_length([257], 256, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: m.loglikelihood([request("a", "b" * 25)]),
            r"continuation: got 25 tokens.*at most 24, the decoder's max_length",
        ),
        (
            lambda m: m.generate_until([request("a", {})]),
            "max_gen_toks: got 256; expected less than 24",
        ),
        (
            lambda m: m.generate_until([request("a", {"do_sample": True})]),
            "generation_kwargs: got .*do_sample.*no sampling",
        ),
        (
            lambda m: adapter.EvaluatedDecoder(m.decoder, Vocabulary([])),
            "tokenizer: got one of 259 ids; expected at most 256",
        ),
        (
            lambda m: adapter.EvaluatedDecoder(m.decoder, m.tokenizer),
            "prefix_id: got None; expected a token from 0 to 255",
        ),
    ],
    ids=["continuation", "room", "sampling", "tokenizer", "prefix"],
)
def test_what_cannot_be_answered_raises(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def test_scores_that_are_no_numbers_raise(decoder):
    broken = nnx.clone(decoder)
    broken.embedding.embedding[...] = jnp.full((256, 16), jnp.nan)
    model = adapter.EvaluatedDecoder(
        broken, adapter.ByteTokenizer(), batch_size=2, prefix_id=NEWLINE
    )
    with pytest.raises(FloatingPointError, match="NaN for text 0"):
        model.loglikelihood([request("a", "b")] * 3)


def test_a_missing_package_says_which_extra(monkeypatch, decoder):
    monkeypatch.setitem(sys.modules, "lm_eval.api.model", None)
    adapter._harness_class.cache_clear()
    with pytest.raises(ImportError, match=r"attn_jax\[eval\]"):
        adapter.harness_model(decoder, adapter.ByteTokenizer(), prefix_id=NEWLINE)


def test_its_command_line_knows_the_model(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lm_eval", "run", "--help"])
    monkeypatch.setattr("lm_eval.__main__.setup_logging", lambda: None)
    with pytest.raises(SystemExit, match="0"):
        adapter.main()
    assert "--model_args" in capsys.readouterr().out
    from lm_eval.api.registry import get_model

    assert issubclass(get_model("attn_jax"), adapter.EvaluatedDecoder)
    assert get_model("dummy") is not None


@pytest.fixture
def tasks(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    lines = "".join(json.dumps(each) + "\n" for each in QUESTIONS)
    (folder / "questions.json").write_text(lines)
    for name, content in TASKS.items():
        where = f"task: {name}\ndataset_path: json\ntest_split: test\n"
        files = f"dataset_kwargs: {{data_files: {{test: {folder}/questions.json}}}}\n"
        (folder / f"{name}.yaml").write_text(where + files + content)
    return folder


@pytest.fixture
def offline(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # the harness sets it too


@pytest.mark.usefixtures("offline")
def test_the_harness_computes_the_scores_of_a_checkpoint_as_by_hand(
    decoder, model, log_p, tasks, tmp_path
):
    """By the name of the model, as on its command line; tasks are local files."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    state = init_train_state(nnx.state(decoder), adamw(1e-3), seed=0)
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        checkpointer.save(7, state)
    save_config(CONFIG, tmp_path / "decoder.json")
    adapter.register()
    files = f"checkpoint={tmp_path}/checkpoints,config={tmp_path}/decoder.json"
    found = simple_evaluate(
        model="attn_jax",
        model_args=f"{files},vocabulary=bytes,step=7",
        batch_size="2",
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )["results"]
    assert "torch" not in sys.modules
    save_model(decoder, tmp_path / "exported")
    exported = adapter.evaluated_checkpoint(str(tmp_path / "exported"), "bytes")
    assert_same(exported.decoder, decoder)

    right, right_norm, nats, size = 0, 0, 0.0, 0
    for each in QUESTIONS:
        scores = [
            conditional(log_p, each["question"], f" {choice}")[0]
            for choice in each["choices"]
        ]
        lengths = [len(choice) for choice in each["choices"]]
        right += int(np.argmax(scores)) == each["answer"]
        norm = np.array(scores) / lengths
        right_norm += int(np.argmax(norm)) == each["answer"]
        text = f"{each['question']} {each['question']}"
        nats -= model.loglikelihood_rolling([request(text)])[0]
        size += len(text.encode())
    assert found["tiny_choice"]["acc,none"] == right / len(QUESTIONS)
    assert found["tiny_choice"]["acc_norm,none"] == right_norm / len(QUESTIONS)
    perplexity = found["tiny_perplexity"]["byte_perplexity,none"]
    assert perplexity == pytest.approx(np.exp(nats / size), rel=1e-5)
    assert found["tiny_writing"]["exact_match,none"] == 0.0
