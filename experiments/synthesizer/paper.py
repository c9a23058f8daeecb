"""Table 2 of the paper, to stand beside ours.

The numbers are as others' notes of the paper have them; those in parentheses no note
confirms.
"""

from typing import NamedTuple


class Theirs(NamedTuple):
    """A row of the paper's table 2.

    bleu: newstest2014, English to German, and the size of that model.
    perplexity: LM1B, a subword, and the size of that model.
    """

    bleu: str
    bleu_size: str
    perplexity: str
    perplexity_size: str


TABLE = {
    "softmax": Theirs("27.67", "67M", "38.21", "70M"),
    "fixed_random": Theirs("23.89", "61M", "(50.52)", "(53M)"),
    "random": Theirs("27.27", "67M", "40.60", "(58M)"),
    "factorized_random": Theirs("(27.30)", "(61M)", "42.40", "(53M)"),
    "dense": Theirs("27.43", "62M", "40.88", "53M"),
    "factorized_dense": Theirs("(27.32)", "(61M)", "(41.20)", "(53M)"),
    "random+dense": Theirs("27.68", "67M", "(42.35)", "58M"),
    "dense+softmax": Theirs("(27.57)", "74M", "37.27", "(74M)"),
    "random+softmax": Theirs("28.47", "73M", "40.05", "(77M)"),
}
UNKNOWN = Theirs("-", "-", "-", "-")
