from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import Built, Place, build_model, resolve
from lazygnn.models import VQGNN
from lazygnn.propagation.codebook import Codebook
from tests.methods.helpers import check_full_batch

Make = Callable[..., Built]
OPTIONS: dict[str, Any] = {"num_layers": 3, "hidden_channels": 9}
WORDS: dict[str, Any] = {"num_words": 7, "word_channels": 2, "word_decay": 0.5}


def test_training_on_parts_has_a_codebook_for_each_layer_but_the_first(make: Make, block_graph: Graph) -> None:
    built = make("vq-gnn", num_parts=4, **OPTIONS, **WORDS)
    assert isinstance(built.model, VQGNN)
    # nine channels in branches of two
    assert [history.num_bytes for history in named_histories(built.model).values()] == [60 * 5 * 4] * 2
    books = [book for book in built.model.books if isinstance(book, Codebook)]
    assert [(book.num_words, book.num_branches, book.decay) for book in books] == [(7, 5, 0.5)] * 2
    assert all(len(batch.x) == len(batch.nodes) > batch.num_targets for batch in built.loader.sweep())
    # inference reads the same weights, and no codes
    config = resolve("vq-gnn", "block", {"num_parts": 4, **OPTIONS, **WORDS})
    inferring = build_model(config, block_graph, Place(torch.device("cpu"), training=False))
    assert inferring.state_dict().keys() == built.model.state_dict().keys()
    assert not named_histories(inferring)


def test_codes_are_exact_whatever_the_precision_of_training(block_graph: Graph) -> None:
    config = resolve("vq-gnn", "block", {"num_parts": 4, **OPTIONS})
    model = build_model(config, block_graph, Place(torch.device("cpu"), compute_dtype=torch.bfloat16))
    numbers = torch.arange(60.0).unsqueeze(1) + 1000
    for history in named_histories(model).values():
        codes = numbers.expand(60, 3)
        history.push(torch.arange(60), codes, codes)
        assert torch.equal(history.values.read(torch.arange(60)), codes)


def test_in_full_batch_it_is_gcn(make: Make) -> None:
    check_full_batch(make, "vq-gnn", "gcn", OPTIONS)


def test_codes_cannot_be_rounded() -> None:
    with pytest.raises(ConfigError, match="option `history_dtype` is 'int8'"):
        resolve("vq-gnn", "cora", {"history_dtype": "int8"})
