"""The table at the end, made from results alone."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.common import provenance
from experiments.common.live import rate
from experiments.common.tables import aligned, mean_and_spread, show_table
from experiments.synthesizer import speed_table
from experiments.synthesizer.paper import TABLE, UNKNOWN


class Measure(NamedTuple):
    """A number that a study has of every run.

    key, title, form: its name in a run, in a table, and how it is written.
    note: what it means.
    """

    key: str
    title: str
    form: str
    note: str


MEASURES = {
    "language": (
        Measure(
            "validation_perplexity",
            "perplexity",
            ".3f",
            "perplexity: of a token of the validation text, 2 to the bits it costs",
        ),
        Measure(
            "validation_bits_per_byte",
            "bits per byte",
            ".3f",
            "bits per byte: of the same text, whatever a token is",
        ),
    ),
    "translation": (
        Measure(
            "validation_perplexity",
            "perplexity",
            ".2f",
            "perplexity: of a piece of the validation translations, without smoothing, "
            "of the mean of the last checkpoints",
        ),
        Measure("bleu", "BLEU", ".2f", "BLEU: greedy, detokenised, on test sentences"),
        Measure("chrf", "chrF", ".2f", "chrF: of the same translations"),
    ),
    "classification": (
        Measure("test_accuracy", "accuracy", ".3f", "accuracy: on the test examples"),
        Measure(
            "test_loss", "loss", ".3f", "loss: nats an example, on the same examples"
        ),
    ),
}
# What counts as a token of a study's training.
TOKENS = {"classification": "examples/s"}

# What the paper has in its column for a study, and how that is called.
PAPERS = {
    "language": ("LM1B perplexity", lambda row: (row.perplexity, row.perplexity_size)),
    "translation": ("WMT14 BLEU", lambda row: (row.bleu, row.bleu_size)),
}


def columns(results: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the columns."""
    if results["study"] == "speed":
        return speed_table.columns(results)
    ours = [measure.title for measure in MEASURES[results["study"]]]
    paper = _paper(results)
    theirs = (f"paper: {paper[0]}", "paper: parameters") if paper else ()
    speed = TOKENS.get(results["study"], "tokens/s")
    return ("row", *ours, "parameters", speed, *theirs)


def table(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells, one tuple a row, in the order of the columns."""
    if results["study"] == "speed":
        return speed_table.table(results)
    paper = _paper(results)
    return [
        (
            row["row"],
            *(_said(row, measure) for measure in MEASURES[results["study"]]),
            f"{row['parameters']:,}",
            rate(row),
            *(paper[1](TABLE.get(row["row"], UNKNOWN)) if paper else ()),
        )
        for row in results["rows"]
    ]


def _paper(results: Mapping[str, Any]) -> Any:
    """The paper's column, where it has a number for one of the rows."""
    known = any(row["row"] in TABLE for row in results["rows"])
    return PAPERS.get(results["study"]) if known else None


def _said(row: Mapping[str, Any], measure: Measure) -> str:
    """The mean over seeds, half their range, and how many there are."""
    values = [run[measure.key] for run in row["runs"]]
    return mean_and_spread(values, f"{{:{measure.form}}}")


def in_words(numbers: Mapping[str, Any]) -> str:
    """What a run came to, in a line."""
    known = {m.key: m for measures in MEASURES.values() for m in measures}
    found = [
        f"{measure.title} {numbers[key]:{measure.form}}"
        for key, measure in known.items()
        if key in numbers
    ]
    return f"{', '.join(found)}; {numbers['training_seconds'] or 0:.0f} s of training"


def markdown(results: Mapping[str, Any]) -> str:
    """The table as aligned Markdown, and what the rows make of a sentence."""
    rows = aligned(columns(results), table(results))
    written = samples(results)
    return f"{rows}\n```\n{written}\n```\n" if written else rows


def samples(results: Mapping[str, Any]) -> str:
    """A test sentence and its translation by each row's first seed; "" elsewhere."""
    if results["study"] != "translation":
        return ""
    first = [(row["row"], row["runs"][0]["samples"]) for row in results["rows"]]
    sentence = first[0][1][-1]
    lines = [(name, sentence[name]) for name in ("source", "reference")]
    lines += [(name, found[-1]["translation"]) for name, found in first]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:{width}}  {text}" for name, text in lines)


def show(results: Mapping[str, Any]) -> None:
    """Print the table: drawn in a terminal, as Markdown elsewhere."""
    if written := samples(results):
        print(f"\n{written}\n", flush=True)
    show_table(columns(results), table(results))
    print("\n".join(notes(results)) + "\n")


def notes(results: Mapping[str, Any]) -> list[str]:
    """What the columns mean, a sentence each."""
    if results["study"] == "speed":
        return speed_table.notes(results)
    rows = {row["row"] for row in results["rows"]}
    return [
        *(measure.note for measure in MEASURES[results["study"]]),
        "±: half the distance between the best and the worst seed; seed n begins with "
        "the same shared parameters and sees the same batches in every row",
        "parameters: those that are trained, embeddings included; as in the paper, the "
        "rows are not made equally large",
        f"{TOKENS.get(results['study'], 'tokens/s')}: of training, by the steps alone, "
        "on a machine that may have had other work",
        *_of_the_classes(results),
        *_of_the_paper(results),
        *_of_fixed_rows(rows),
    ]


def _of_the_paper(results: Mapping[str, Any]) -> Sequence[str]:
    if _paper(results) is None:
        return []
    return [
        "paper: Tay et al. 2021, table 2, on other data at another scale, so that only "
        "the order of rows compares; its numbers are as others' notes have them, those "
        "in parentheses no note confirms"
    ]


def _of_the_classes(results: Mapping[str, Any]) -> Sequence[str]:
    if results["study"] != "classification":
        return []
    corpus = results["corpus"]
    return [
        f"guessing the commonest of {len(corpus['classes'])} classes is right for "
        f"{corpus['largest_share']:.3f} of {corpus['examples']['test']:,} test "
        "examples, so that an accuracy is known to about "
        f"± {(0.25 / corpus['examples']['test']) ** 0.5:.3f}, whatever the seeds say"
    ]


def _of_fixed_rows(rows: set[str]) -> Sequence[str]:
    fixed = {
        "fixed_random": "fixed_random: logits of deviation 0.02, as random begins "
        "with, so that each head nearly takes the mean of all tokens it sees",
        "fixed_random_wide": "fixed_random_wide: logits of deviation 1; the paper does "
        "not say how its fixed matrices are drawn",
    }
    return [note for row, note in fixed.items() if row in rows]


def scale(results: Mapping[str, Any]) -> str:
    """How large the runs were, where and with what."""
    if results["study"] == "speed":
        return speed_table.scale(results)
    config, seconds = results["config"], results["seconds"]
    return (
        f"{provenance.sentence(results)} {_model(results)} {_data(results)} "
        f"{_seeds(config)}. Training took {seconds['training'] / 60:.0f} minutes in "
        f"all, compiling {seconds['compile'] / 60:.0f}.\n"
    )


def _model(results: Mapping[str, Any]) -> str:
    config = results["config"]
    layers = f"{config['num_layers']}"
    stacks = 2 if results["study"] == "translation" else 1
    return (
        f"{' + '.join([layers] * stacks)} layers of width {config['d_model']} with "
        f"{config['num_heads']} heads, {config['steps']:,} steps."
    )


def _seeds(config: Mapping[str, Any]) -> str:
    count = len(config["seeds"])
    return f"{count} seed{'s' * (count > 1)}"


def _data(results: Mapping[str, Any]) -> str:
    """What was learnt, in a sentence."""
    config, corpus = results["config"], results["corpus"]
    if results["study"] == "language":
        pieces = config["vocab_size"]
        tokens = f"{pieces:,} pieces" if pieces else "bytes"
        return (
            f"{config['batch_size']} x {config['length']} tokens a step, of "
            f"{corpus['name']} in {tokens}, {corpus['training_tokens']:,} tokens of "
            f"{corpus['training_bytes'] / corpus['training_tokens']:.1f} bytes."
        )
    if results["study"] == "classification":
        return (
            f"{config['batch_size']} of {corpus['examples']['training']:,} examples a "
            f"step ({corpus['name']}), in up to {config['length']} of "
            f"{config['vocab_size']:,} pieces."
        )
    return (
        f"{corpus['epochs']:.1f} epochs of {corpus['training_pairs']:,} pairs "
        f"({corpus['name']}) of up to {config['max_length']} pieces a side."
    )
