"""What figure 1 of Katharopoulos et al. 2020 shows, read off within about 10 %.

Forward and gradients, a sample, on a GTX 1080 Ti of 11 GB.
"""

FIGURE = "Katharopoulos et al. 2020, figure 1"

MILLISECONDS = {
    "softmax": {512: 1.45, 1024: 4.7, 2048: 17.5, 4096: 68.0},
    "lsh-1": {512: 1.25, 65536: 165.0},
    "linear": {
        512: 0.6,
        1024: 1.2,
        2048: 2.5,
        4096: 5.0,
        8192: 9.8,
        16384: 21.0,
        65536: 97.0,
    },
}

MEGABYTES = {
    "softmax": {512: 46.0, 1024: 172.0, 2048: 660.0, 4096: 2600.0},
    "lsh-1": {512: 22.0, 65536: 3300.0},
    "linear": {
        512: 12.0,
        1024: 24.0,
        2048: 48.0,
        4096: 97.0,
        8192: 193.0,
        16384: 385.0,
        65536: 1550.0,
    },
}

# The rows here whose curves are the paper's.
NAMES = {"softmax": "softmax-dense", "lsh-1": "lsh-1", "linear": "linear"}
