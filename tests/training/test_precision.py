"""Training in fewer bits: near float32, nothing lasting in torch, and a run that is resumed exactly."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from lazygnn import LazyGNN
from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods import METHODS, build, resolve
from lazygnn.model import Model
from lazygnn.ops import Csr
from lazygnn.training import EpochReport, Trainer
from lazygnn.training import precision as precision_module
from lazygnn.training.precision import Precision, product_precision

# torch warns once that a CPU lacks this arithmetic and continues in float32
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
LEARNING = [method for method in METHODS if method != "label-propagation"]
# one method of every model, with the norms that the others are not trained with
MODELS = ["lazygnn", "lazygnn-deep", "gcn-gas", "gcnii-gas", "gcn-graphfm", "gcn-lmc", "graphsage", "cluster-gcn"]
MODELS += ["fastgcn", "vr-gcn", "mvs-gnn", "vq-gnn", "sign"]
NORMED = [*((method, "batch") for method in LEARNING), *((each, norm) for each in MODELS for norm in ("none", "layer"))]
PARTS: dict[str, Any] = {"num_parts": 4, "partition": "random"}


def train(
    method: str, graph: Graph, device: str = "cpu", **values: Any
) -> tuple[Trainer, list[EpochReport], dict[str, Tensor]]:
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    wanted = {"epochs": 12, "eval_every": 12, "hidden_channels": 16, "num_layers": 2, "num_blocks": 2, "dropout": 0.0}
    wanted |= values
    config = resolve(method, "block", {name: value for name, value in wanted.items() if name in known})
    torch.manual_seed(0)
    built = build(config, graph, device)
    reports: list[EpochReport] = []
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer, on_epoch=reports.append)
    trainer.run()
    return trainer, reports, {name: value.clone() for name, value in trainer.checkpoint()[0].items()}


def sparse_features(graph: Graph) -> Graph:
    sparse = scipy.sparse.csr_matrix(np.where(torch.as_tensor(graph.x) > 0, torch.as_tensor(graph.x), 0))
    return replace(graph, x=Csr.from_arrays(sparse.indptr, sparse.indices, sparse.data, graph.in_channels))


def test_every_model_is_trained_with_every_norm(block_graph: Graph) -> None:
    kinds = {method: type(build(resolve(method, "block", {}), block_graph).model) for method in LEARNING}
    normed = [method for method in LEARNING if "norm" in METHODS[method].options.model_fields]
    assert {kinds[method] for method in normed} == {kinds[method] for method in MODELS}


@pytest.mark.parametrize(("method", "norm"), NORMED)
def test_bfloat16_learns_and_stays_near_float32(block_graph: Graph, method: str, norm: str) -> None:
    wide, narrow = (
        train(method, block_graph, precision=precision, norm=norm, **PARTS)[1] for precision in ("float32", "bfloat16")
    )
    assert narrow[-1].loss < 0.9 * narrow[0].loss
    assert narrow[0].loss != wide[0].loss
    for one, other in zip(narrow, wide, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=0.1)


@pytest.mark.parametrize(
    "method", ["lazygnn", "lazygnn-paper", "gcn-gas", "gcn-graphfm", "gcn-lmc", "gcnii-gas", "graphsage", "vq-gnn"]
)
def test_sparse_features_train_in_bfloat16_too(block_graph: Graph, method: str) -> None:
    graph = sparse_features(block_graph)
    wide, narrow = (
        train(method, graph, precision=precision, norm="batch", **PARTS)[1] for precision in ("float32", "bfloat16")
    )
    assert narrow[-1].loss < narrow[0].loss
    assert narrow[-1].loss == pytest.approx(wide[-1].loss, rel=0.1)


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_propagated_is_bfloat16_and_what_is_learned_float32(
    block_graph: Graph, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = sparse_features(block_graph) if sparse else block_graph
    values = {"precision": "bfloat16", "history_dtype": "bfloat16", "mlp_layers": 1} | PARTS
    config = resolve("lazygnn", "block", values)
    built = build(config, graph)
    seen: list[torch.dtype] = []
    forward = type(built.model).forward

    def spying(self: Model, batch: Batch) -> Tensor:
        out = forward(self, batch)
        seen.append(out.dtype)
        return out

    monkeypatch.setattr(type(built.model), "forward", spying)
    trainer = Trainer(built.model, built.loader, built.graph, TrainerOptions(epochs=2, precision="bfloat16"))
    trainer.run()
    assert set(seen) == {torch.bfloat16}
    (history,) = trainer.histories.values()
    assert history.values.read(torch.arange(3)).dtype == torch.bfloat16
    assert {p.dtype for p in built.model.parameters()} == {torch.float32}
    assert trainer.checkpoint()[0]["history.propagation.features.values.rows"].dtype == torch.bfloat16


def test_evaluation_and_diagnosis_of_the_histories_are_float32(block_graph: Graph) -> None:
    trainer, reports, _ = train("lazygnn", block_graph, precision="bfloat16", diagnose_every=1, **PARTS)
    assert trainer.model.infer(trainer.graph).dtype == torch.float32
    exact = train("lazygnn", block_graph, diagnose_every=1, **PARTS)[1]
    for one, other in zip(reports, exact, strict=True):
        assert one.laziness is not None
        assert other.laziness is not None
        assert one.laziness["fixed_point_error"] == pytest.approx(other.laziness["fixed_point_error"], rel=0.1)


def test_a_model_of_ones_own_need_not_know_the_precision(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = LazyGNN(3, 16, 3, num_nodes=60)
    reports: list[EpochReport] = []
    options = TrainerOptions(epochs=20, precision="bfloat16")
    Trainer(model, FullLoader(block_graph, 2), block_graph, options, on_epoch=reports.append).fit()
    assert reports[-1].loss < reports[0].loss


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_a_run_in_fewer_bits_is_resumed_exactly(block_graph: Graph, precision: Precision) -> None:
    values: dict[str, Any] = {"precision": precision, "dropout": 0.5, "norm": "batch", "epochs": 4, "eval_every": 1}
    values |= PARTS
    straight, _, expected = train("lazygnn", block_graph, **values)

    class Stop(Exception):
        pass

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == 6:
            raise Stop

    def make() -> Trainer:
        torch.manual_seed(0)
        config = resolve("lazygnn", "block", {"hidden_channels": 16} | values)
        built = build(config, block_graph)
        return Trainer(built.model, built.loader, built.graph, config.trainer)

    first, second = make(), make()
    first.on_batch = stop
    with pytest.raises(Stop):
        first.run()
    second.restore(*first.checkpoint())
    second.run()
    found = second.checkpoint()[0]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert straight.epoch == second.epoch


def test_tf32_is_a_setting_for_a_while() -> None:
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    with product_precision("tf32"):
        assert products.fp32_precision == "tf32"
    assert products.fp32_precision == before
    with pytest.raises(KeyError), product_precision("tf32"):
        raise KeyError
    assert products.fp32_precision == before
    with product_precision("bfloat16"):
        assert products.fp32_precision == before


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"option `precision` is 'float16': input should be 'float32', 'tf32' or"):
        resolve("lazygnn", "block", {"precision": "float16"})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("method", LEARNING)
def test_fewer_bits_learn_on_a_gpu(block_graph: Graph, method: str, norm: str, precision: str) -> None:
    wide, narrow = (
        train(method, block_graph, "cuda", precision=each, norm=norm, **PARTS)[1] for each in ("float32", precision)
    )
    assert narrow[-1].loss < 0.9 * narrow[0].loss
    # a rounding error can assign a node to another code word
    tolerance = 0.3 if method == "vq-gnn" else 0.1
    for one, other in zip(narrow, wide, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=tolerance)


@pytest.mark.parametrize(("cost", "warned"), [(0.2, False), (40.0, True)])
def test_bfloat16_on_a_cpu_that_is_slower_with_it_is_warned_about(
    block_graph: Graph, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, cost: float, warned: bool
) -> None:
    monkeypatch.setattr("lazygnn.training.trainer.cost_of_bfloat16", lambda: cost)
    train("lazygnn", block_graph, epochs=1)
    assert "bfloat16" not in caplog.text
    train("lazygnn", block_graph, epochs=1, precision="bfloat16")
    assert ("takes 40.0 times as long for products in bfloat16; set `precision=float32`" in caplog.text) == warned


def test_what_bfloat16_costs_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 9, 20, 26, 30, 34, 40, 45, 50, 59, 60, 62, 70, 73, 80, 89])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    # the first product of each is not counted
    assert precision_module.cost_of_bfloat16.__wrapped__() == 4 / 2
