"""VQ-GNN: a GCN on parts of the graph whose neighbors outside are words of a codebook.

https://arxiv.org/abs/2110.14363
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field

from lazygnn.graph import Graph
from lazygnn.methods.base import Method, Place
from lazygnn.methods.gcn import GCNOptions, adapt
from lazygnn.methods.options import GASOptions, load_parts
from lazygnn.model import Model
from lazygnn.models import VQGNN
from lazygnn.propagation import Mix
from lazygnn.propagation.codebook import Codebook


class VQGNNOptions(GCNOptions, GASOptions):
    """A GCN with a codebook for each layer but the first."""

    for_parts: ClassVar[tuple[str, ...]] = (*GASOptions.for_parts, "num_words", "word_channels", "word_decay")

    history_dtype: Literal["float32"] = Field("float32", description="number format of the stored codes")
    # codes are whole numbers in float32
    num_words: int = Field(256, ge=1, le=65_536, description="words in each branch of a codebook")
    word_channels: int = Field(4, ge=1, description="channels in a branch of a codebook")
    word_decay: float = Field(0.99, ge=0, lt=1, description="weight of older rows in a word")


def make_model(options: VQGNNOptions, graph: Graph, place: Place) -> Model:
    """Builds a GCN, with codebooks in mini-batches; codes of nodes are for training alone."""
    count = options.num_layers - 1 if options.num_parts > 1 else 0
    books = [
        Codebook(
            options.hidden_channels,
            options.num_words,
            word_channels=options.word_channels,
            decay=options.word_decay,
        )
        for _ in range(count)
    ]
    wide = replace(place, compute_dtype=torch.float32)
    codes = [
        options.open(graph, book.num_branches, Mix(1.0), wide, f"codes-{index + 1}")
        for index, book in enumerate(books if place.training else ())
    ]
    return options.build(
        VQGNN,
        graph,
        num_layers=options.num_layers,
        books=books,
        codes=codes,
    )


METHOD = Method(
    "GCN on parts, with a few codes for each node in place of a history",
    "Ding et al., VQ-GNN: A Universal Framework to Scale up GNNs using Vector Quantization, NeurIPS 2021",
    VQGNNOptions,
    make_model,
    load_parts,
    adapt=adapt,
)
