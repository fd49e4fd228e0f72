"""Trains on your own graph with node ids, from arrays to predictions: `python examples/own_graph.py`."""

import numpy as np
import torch

from lazygnn import Graph, Trainer, build, resolve
from lazygnn.training import infer

TOPICS = ("astronomy", "botany", "chemistry")
rng = np.random.default_rng(0)
torch.manual_seed(0)

# in practice from files: page ids, links, word counts and topics
pages = np.array([f"page-{number:03d}" for number in range(600)])
topic = rng.integers(0, len(TOPICS), len(pages))
source = rng.integers(0, len(pages), 6000)
target = rng.integers(0, len(pages), 6000)
kept = (topic[source] == topic[target]) | (rng.random(6000) < 0.3)
links = np.stack((pages[source[kept]], pages[target[kept]]))
words = rng.poisson(1.0 + 0.5 * (np.arange(30) % len(TOPICS) == topic[:, None]))

# the links are directed; `Graph.from_edges` makes them undirected and warns
order = rng.permutation(len(pages))
graph = Graph.from_edges(
    links,
    words,
    topic,
    train_mask=order < 30,
    val_mask=(order >= 30) & (order < 100),
    test_mask=order >= 100,
    node_ids=pages,
    class_names=TOPICS,
    name="pages",
)
print(f"{graph.num_nodes} nodes, {graph.num_edges} edges, {graph.in_channels} features")

config = resolve("lazygnn", "pages", {"epochs": 100, "lr": 0.01}, graph=graph)
built = build(config, graph)
result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
print(f"best epoch {result.best_epoch} of {result.epochs}, test accuracy {result.scores['test']:.3f}")

# a loader may sort the nodes into parts, so take the ids from `built.graph`
probability, label = infer(built.model, built.graph).softmax(dim=1).max(dim=1)
ids = np.asarray(built.graph.node_ids)
predictions = {page: (TOPICS[k], float(p)) for page, k, p in zip(ids, label, probability, strict=True)}
for page in ("page-007", "page-042", "page-123"):
    name, p = predictions[page]
    print(f"{page}: {name}, probability {p:.2f}")
