"""Trains on sentence pairs, translates the held-out ones, and shows what came out."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from attn_jax.data import Vocabulary, load_vocabulary
from attn_jax.models import count_parameters
from experiments.common import provenance
from experiments.common.errors import fail
from experiments.common.main import run_program
from experiments.common.plan import publish
from experiments.common.vocabulary import learn_vocabulary
from experiments.common.workdir import Workdir
from experiments.translation import plot, results, table
from experiments.translation.command_line import PROGRAM, parse
from experiments.translation.config import NOT_SHARED, TranslationConfig
from experiments.translation.corpus import Corpus, load_corpus
from experiments.translation.training import (
    RUN,
    Data,
    Program,
    Trained,
    encode,
    model_config,
    train,
)


class Plan(NamedTuple):
    """All that is known before anything is computed."""

    config: TranslationConfig
    origin: dict[str, Any]
    data: Data
    workdir: Workdir

    def shared_config(self) -> dict[str, Any]:
        """What all commands in the work directory have in common."""
        return {
            **self.config.shared(),
            "corpus_fingerprint": self.data.corpus.fingerprint,
            "vocabulary_fingerprint": self.data.vocabulary.fingerprint,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit code, as `run_program` says."""
    return run_program(PROGRAM, arguments, prepare, run)


def prepare(arguments: Sequence[str]) -> Plan:
    """Everything that can be wrong, looked at before anything is computed."""
    config = parse(arguments)
    corpus = load_corpus(config)
    workdir = Workdir(config.directory(), NOT_SHARED)
    if config.map_sentence >= len(corpus.test):
        expected = f"below {len(corpus.test)}, the number of test sentences"
        fail("--map-sentence", config.map_sentence, expected, "name another one")
    model_config(config)
    data = encode(corpus, _vocabulary(config, corpus, workdir), config)
    plan = Plan(config, provenance.origin(PROGRAM, arguments), data, workdir)
    workdir.check(plan.shared_config())
    done = workdir.latest_step(RUN)
    if done > config.steps:
        fail(
            "--steps",
            f"{config.steps}, while {workdir.path} holds {done} steps",
            f"at least {done}",
            "pass more --steps, or another --workdir",
        )
    return plan


def _vocabulary(
    config: TranslationConfig, corpus: Corpus, workdir: Workdir
) -> Vocabulary:
    """The one in the work directory, or one learnt from the training pairs."""
    path = workdir.path / "vocabulary.json"
    if not path.exists():
        texts = [*corpus.train.source, *corpus.train.target]
        return learn_vocabulary(texts, config.vocab_size)
    vocabulary = load_vocabulary(path)
    there = workdir.config() or {}
    mine = corpus.fingerprint
    if not workdir.begun() and there.get("corpus_fingerprint", mine) != mine:
        # Another config may go on where nothing has begun, but not with its pieces.
        expected = "none, or one for these sentence pairs"
        remedy = "pass another --workdir, or remove this one to begin anew"
        fail("workdir", f"{path}, learnt from other sentence pairs", expected, remedy)
    recorded = there.get("vocabulary_fingerprint")
    if recorded is not None:
        owner = str(workdir.path / "config.json")
        vocabulary.check_fingerprint(recorded, owner=owner)
    if vocabulary.size != config.vocab_size:
        fail(
            "--vocab-size",
            f"{config.vocab_size}, while {path} has {vocabulary.size} pieces",
            f"{vocabulary.size}",
            "pass that, or another --workdir",
        )
    return vocabulary


def run(plan: Plan) -> None:
    """Train what is left to train, translate, then write and show the results."""
    config, data, workdir = plan.config, plan.data, plan.workdir
    corpus = data.corpus
    data.vocabulary.save(workdir.path / "vocabulary.json")
    program = Program(config, data)
    print(
        f"{corpus.name}: {data.train.summary}\n"
        f"{count_parameters(program.model):,} parameters; compiling",
        flush=True,
    )
    trained = train(program, workdir)
    training = _kept(plan, trained)
    trained = trained._replace(compile_seconds=training["compile_seconds"])
    model = program.with_params(trained.params)
    print("translating the test sentences", flush=True)
    begin = time.perf_counter()
    translations = program.translator.search(model, corpus.test.source)
    seconds = time.perf_counter() - begin
    found = results.assemble(
        config,
        provenance.joined([training, plan.origin]),
        corpus,
        program,
        trained,
        translations,
        seconds,
    )
    texts = [translation.text for translation in translations]
    _write_lines(workdir.path / f"test.{config.target}.translated", texts)
    publish(found, workdir, plot, table)


def _kept(plan: Plan, trained: Trained) -> dict[str, Any]:
    """What the command that trained so many steps has kept of it."""
    steps = plan.config.steps
    there = plan.workdir.finished(RUN)
    if there is None or there["steps"] != steps:
        compiling = trained.compile_seconds
        there = {"steps": steps, "compile_seconds": compiling, **plan.origin}
        plan.workdir.finish(RUN, there)
    return there


def _write_lines(path: Any, lines: Sequence[str]) -> None:
    text = "".join(line.replace("\n", " ") + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
