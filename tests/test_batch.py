from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lazygnn.batch import Batch, ControlBatch, loss_weight
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.ops import Csr


def test_the_full_batch_holds_every_node_and_one_matrix(path_graph: Graph) -> None:
    batch = Batch.full(path_graph, num_layers=3)
    assert batch.x is path_graph.x
    assert batch.y is path_graph.y
    assert batch.targets.tolist() == batch.nodes.tolist() == [0, 1, 2, 3]
    assert len(batch.adjs) == 3
    assert all(adj is path_graph.adj for adj in batch.adjs)


def test_a_batch_is_shown_in_one_line(path_graph: Graph) -> None:
    assert repr(Batch.full(path_graph, 2)) == (
        "Batch(num_targets=4, num_nodes=4, num_layers=2, in_channels=3, whole=True, device='cpu')"
    )


def test_only_the_full_batch_is_marked_as_the_whole_graph(path_graph: Graph) -> None:
    full = Batch.full(path_graph, 1)
    assert full.whole
    assert full.to(torch.device("meta")).whole
    (part,) = ClusterLoader(path_graph, torch.tensor([0, 4]), 1, halo="none")
    assert not part.whole


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("cora", 2), GraphError, r"`graph` is 'cora', of type str; make a graph with `load_graph`"),
        ((torch.ones(3, 2), 2), GraphError, r"`graph` is of type Tensor and shape \(3, 2\); make a graph with"),
        ((None, 2.0), ConfigError, r"`num_layers` is 2.0; give the number of steps of a pass, 0 or more"),
        ((None, -1), ConfigError, r"`num_layers` is -1; give the number of steps"),
        ((None, "2"), ConfigError, r"`num_layers` is '2'; give the number of steps"),
    ],
)
def test_what_makes_no_full_batch_is_named(
    path_graph: Graph, arguments: tuple[Any, Any], error: type[Exception], message: str
) -> None:
    graph, num_layers = arguments
    with pytest.raises(error, match=message):
        Batch.full(path_graph if graph is None else graph, num_layers)


def test_targets_come_first(path_graph: Graph) -> None:
    full = Batch.full(path_graph, 1)
    nodes = torch.tensor([2, 3, 0])
    batch = Batch(full.x, full.y[:2], full.weight[:2], nodes, num_targets=2, adjs=full.adjs)
    assert batch.targets.tolist() == [2, 3]


def test_weights_are_a_mean_over_training_nodes(path_graph: Graph) -> None:
    assert Batch.full(path_graph, 1).weight.tolist() == [0.5, 0, 0.5, 0]
    # two batches of equal size add up to twice the mean, one of them to the mean on average
    assert loss_weight(path_graph, num_batches=2).tolist() == [1, 0, 1, 0]


def test_without_training_nodes_the_loss_is_the_callers_own() -> None:
    graph = Graph.from_edges(np.array([[0, 1], [1, 0]]), np.ones((2, 1)), name="unlabeled")
    assert Batch.full(graph, 1).weight.tolist() == [0.0, 0.0]
    with pytest.raises(GraphError, match=r"graph `unlabeled` has no training nodes; give it labels `y`"):
        loss_weight(graph)


def test_the_full_loader_gives_the_same_batch_every_epoch(path_graph: Graph) -> None:
    loader = FullLoader(path_graph, 2)
    (first,), (second,) = loader, loader
    assert first is second
    assert first.lasting
    assert len(loader) == 1
    assert len(first.adjs) == 2


def test_features_alone_may_stay_behind_and_follow_later(block_graph: Graph) -> None:
    batch, meta = Batch.full(block_graph, 2), torch.device("meta")
    mixed = batch.rest_to(meta)
    assert mixed.x is batch.x
    assert {tensor.device for tensor in list(mixed.tensors())[1:]} == {meta}
    assert mixed.adjs[0] is mixed.adjs[1]
    assert mixed.whole
    assert mixed.lasting
    mixed.adjs[0].derived["plan"] = "worked out before"
    for there in (mixed.to(meta), mixed.rest_to(meta)):
        assert there.nodes is mixed.nodes
        assert all(one is other for one, other in zip(there.adjs, mixed.adjs, strict=True))
    whole = mixed.to(meta)
    assert whole.x.device == meta
    assert whole.to(meta) is whole


class Copies(TorchDispatchMode):
    """Lists the copies between devices: the device, and whether whoever asked may go on before the end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            self.seen.append((kwargs["device"].type, kwargs.get("non_blocking", False)))
        return func(*args, **kwargs)


def test_a_cpu_waits_for_what_an_accelerator_sends_it(block_graph: Graph) -> None:
    batch = Batch.full(block_graph, 1)
    with FakeTensorMode(allow_non_fake_inputs=True), Copies() as copies:
        there = batch.to(torch.device("cuda", 0))
        sent = list(copies.seen)
        copies.seen.clear()
        there.to(torch.device("cpu"))
    num_tensors = len(list(batch.tensors()))
    assert sent == [("cuda", True)] * num_tensors
    assert copies.seen == [("cpu", False)] * num_tensors


def test_a_batch_is_where_its_features_are_too(block_graph: Graph) -> None:
    batch = Batch.full(block_graph, 1)
    there = batch.to(torch.device("meta"))
    moved = replace(there, x=batch.x).to(torch.device("meta"))
    assert moved.x.device.type == "meta"
    assert moved.adjs[0] is there.adjs[0]
    sparse = Csr.from_sorted(torch.arange(60), torch.zeros(60), torch.ones(60), (60, 2))
    moved = replace(there, x=sparse).to(torch.device("meta"))
    assert moved.x.device.type == "meta"
    assert batch.to(torch.device("cpu")) is batch


def test_all_tensors_of_a_batch_are_listed(block_graph: Graph) -> None:
    batch = Batch.full(block_graph, 2)
    adj = [block_graph.adj.rowptr, block_graph.adj.col, block_graph.adj.value]
    expected = [batch.x, batch.y, batch.weight, batch.nodes, *adj, *adj]
    assert all(one is other for one, other in zip(batch.tensors(), expected, strict=True))


def test_labeled_rows_move_with_their_batch(block_graph: Graph) -> None:
    batch, meta = Batch.full(block_graph, 1, label_step=True), torch.device("meta")
    labeled = batch.labeled
    assert labeled is not None
    torch.testing.assert_close(labeled.adj.to_dense(), block_graph.adj.to_dense()[labeled.rows])
    torch.testing.assert_close(labeled.transposed.to_dense(), labeled.adj.to_dense().T)
    parts = [labeled.rows] + [t for m in (labeled.adj, labeled.transposed) for t in (m.rowptr, m.col, m.value)]
    assert all(one is other for one, other in zip(list(batch.tensors())[-7:], parts, strict=True))
    for there in (batch.to(meta), batch.rest_to(meta)):
        assert {tensor.device for tensor in list(there.tensors())[-7:]} == {meta}


def test_matrices_for_control_variates_move_with_their_batch(block_graph: Graph) -> None:
    batch, meta = Batch.full(block_graph, 1), torch.device("meta")
    control = ControlBatch(**vars(batch), complete=block_graph.adj, noise=[block_graph.adj.T])
    parts = [t for m in (control.complete, *control.noise) for t in (m.rowptr, m.col, m.value)]
    assert all(one is other for one, other in zip(list(control.tensors())[-6:], parts, strict=True))
    for there in (control.to(meta), control.rest_to(meta)):
        assert isinstance(there, ControlBatch)
        assert {tensor.device for tensor in list(there.tensors())[-6:]} == {meta}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_batch_knows_where_it_is_by_any_name(block_graph: Graph) -> None:
    batch = Batch.full(block_graph, 2).to(torch.device("cuda"))
    for name in ("cuda", "cuda:0"):
        assert batch.to(torch.device(name)) is batch


def test_the_rows_of_the_halo_move_with_their_batch(block_graph: Graph) -> None:
    batch = next(iter(ClusterLoader(block_graph, torch.tensor([0, 20, 60]), 2, halo="induced")))
    ring, meta = batch.ring, torch.device("meta")
    assert ring is not None
    parts = [ring.y, ring.weight, ring.coverage]
    assert all(one is other for one, other in zip(list(batch.tensors())[-3:], parts, strict=True))
    for there in (batch.to(meta), batch.rest_to(meta)):
        assert {tensor.device for tensor in list(there.tensors())[-3:]} == {meta}
