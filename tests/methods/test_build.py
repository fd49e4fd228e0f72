import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.data import synthetic
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.methods import (
    METHODS,
    Built,
    Place,
    build,
    build_model,
    derive,
    find_method,
    method_options,
    read_config,
    resolve,
)
from lazygnn.methods.base import Facts
from lazygnn.methods.rule import rule
from lazygnn.task import Task
from lazygnn.training import Trainer, infer

Make = Callable[..., Built]
LEARNING = [method for method in METHODS if method != "label-propagation"]


@pytest.mark.parametrize("method", LEARNING)
@pytest.mark.parametrize("values", [{}, {"prop_channels": 5, "norm": "batch", "mlp_layers": 3}], ids=["plain", "wide"])
def test_every_method_that_learns_takes_a_step(
    make: Make, block_graph: Graph, method: str, values: dict[str, Any]
) -> None:
    known = find_method(method).options.model_fields
    built = make(method, **{name: value for name, value in values.items() if name in known})
    (batch,) = built.loader
    out = built.model(batch)
    assert out.shape == (batch.num_targets, 3)
    (batch.weight * block_graph.task.loss(out, batch.y)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in built.model.parameters())
    assert any(bool(p.grad.abs().sum() > 0) for p in built.model.parameters() if p.grad is not None)
    assert built.model.infer(built.graph).shape == (60, 3)


@pytest.mark.parametrize("method", LEARNING)
def test_every_method_refuses_features_of_another_width(make: Make, block_graph: Graph, method: str) -> None:
    other = synthetic.block_graph(60, 3, degree=4, in_channels=block_graph.in_channels + 1, num_classes=3)
    with pytest.raises(ConfigError, match=r"the input has \d+ columns, and the layer was built for \d+; give"):
        make(method).model.infer(other)


@pytest.mark.parametrize("method", LEARNING)
def test_every_method_draws_its_dropout_by_the_fast_numbers_on_a_cpu(
    make: Make, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = find_method(method).options.model_fields
    values = {name: 0.3 for name in ("dropout", "input_dropout") if name in known}
    built = make(method, **values)
    (batch,) = built.loader
    torch.manual_seed(0)
    first = built.model(batch)
    assert bool((built.model(batch) != first).any()) == bool(values)

    def slow(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        assert not training or p == 0, "torch draws a double for every entry"
        return x

    monkeypatch.setattr(torch.nn.functional, "dropout", slow)
    built.model(batch)


def test_the_same_seed_builds_the_same_weights(make: Make) -> None:
    first, second = (make("lazygnn").model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("method", "num_layers"), [("mlp", 0), ("appnp", 10), ("lazygnn", 2)])
def test_batches_have_as_many_layers_as_a_pass(make: Make, method: str, num_layers: int) -> None:
    (batch,) = make(method).loader
    assert len(batch.adjs) == num_layers


def test_features_are_normalized_on_request(make: Make, block_graph: Graph) -> None:
    plain, scaled = (make("mlp", normalize_features=flag).graph.x for flag in (False, True))
    assert plain is block_graph.x
    assert isinstance(scaled, Tensor)
    torch.testing.assert_close(scaled.abs().sum(dim=1), torch.ones(60))


def test_what_cannot_be_built_is_named(block_graph: Graph) -> None:
    config: Any = resolve("mlp", "block")
    with pytest.raises(GraphError, match=r"`graph` is 'cora', of type str; make a graph with `load_graph`, `Graph\."):
        build(config, "cora")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"`config` is 'mlp', of type str; make one with `resolve\(method, dataset\)`"
    ):
        build("mlp", block_graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("lazygnn", {}),
        ("sgc", {}),
        ("mlp", {"normalize_features": True}),
        ("lazygnn", {"num_parts": 3, "partition": "random"}),
        ("lazygnn", {"num_parts": 3, "partition": "random", "features": "host"}),
    ],
)
def test_a_graph_is_prepared_as_the_one_that_was_built_with(
    method: str, values: dict[str, Any], block_graph: Graph
) -> None:
    assert isinstance(block_graph.x, Tensor)
    wide = replace(block_graph, x=block_graph.x.abs() * 1000.0 ** torch.arange(block_graph.in_channels))
    built = build(resolve(method, "mine", values, graph=wide), wide)
    prepared = built.prepare(wide)
    # standardized, unless rows have a sum of one
    assert (built.feature_scale is None) is ("normalize_features" in values)
    order = torch.arange(60) if built.parts is None else built.parts.order
    outputs = infer(built.model, prepared)
    torch.testing.assert_close(outputs[order], infer(built.model, built.graph), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(outputs, infer(built.model, wide), rtol=1e-2, atol=1e-3)
    assert prepared.num_nodes == wide.num_nodes
    assert built.prepare(block_graph).num_nodes == 60


def test_a_prepared_graph_has_the_threshold_that_training_chose(block_graph: Graph) -> None:
    rare = (torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) < 0.15).float()
    several = replace(block_graph, y=rare, task=Task("multi-label", 3))
    config = resolve("mlp", "mine", {"epochs": 3}, graph=several)
    built = build(config, several)
    result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    assert built.prepare(several).task.threshold == result.threshold != 0.5


def test_the_device_of_the_configuration_is_taken(block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match="unknown device `gpu`; choose auto, cpu or cuda"):
        build(resolve("mlp", "mine", graph=block_graph, device="gpu"), block_graph)
    # what is asked for counts more
    named = resolve("mlp", "mine", graph=block_graph, device="gpu")
    assert build(named, block_graph, "cpu").model.device == torch.device("cpu")
    assert build(resolve("mlp", "mine", graph=block_graph), block_graph).model.device == torch.device("cpu")


def test_a_name_of_a_data_set_leaves_features_of_another_graph_as_they_are_and_says_so(
    block_graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve("mlp", "cora")
    assert config.trainer.standardize_features == "off"
    build(config, block_graph)
    (message,) = caplog.messages
    assert "`standardize_features=auto`" in message


def test_a_configuration_made_without_the_graph_is_warned_of(
    block_graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"epochs": 5, "hidden_channels": 8}
    for use_recipe in (True, False):
        build(resolve("mlp", "block", given, use_recipe=use_recipe), block_graph)
        (message,) = caplog.messages
        assert message.startswith(
            "`resolve` was called without the graph; with it, `mlp` has other defaults for `block`: "
        )
        assert message.endswith("; pass `graph=graph` to `resolve`")
        assert "`input_dropout=0.5`" in message
        assert "epochs=5" not in message
        assert "hidden_channels" not in message
        caplog.clear()
    # what was asked for is no part of the configuration
    alone, fitted = (resolve("mlp", "block", given, graph=graph) for graph in (None, block_graph))
    assert read_config(json.loads(alone.record())) == alone
    for config in (fitted, derive(alone, {}), read_config(json.loads(alone.record()))):
        build(config, block_graph)
    # everything is given that follows from a graph
    values = rule(METHODS["mlp"], Facts.of(block_graph)) | {"hidden_channels": 8}
    build(resolve("mlp", "block", values), block_graph)
    assert not caplog.messages


def test_a_method_without_weights_is_not_trained(make: Make) -> None:
    with pytest.raises(ConfigError, match="`label-propagation` has no weights to train; set `epochs=0`"):
        make("label-propagation", epochs=3)
    assert not list(make("label-propagation").model.parameters())


@pytest.mark.parametrize("method", list(METHODS))
def test_the_options_of_every_method_are_resolved_at_once(method: str) -> None:
    config = resolve(method, "cora")
    options = method_options(config)
    assert type(options) is find_method(method).options
    assert options.resolved() == options
    assert options.chosen() == {}
    for name in ("edges", "beta", "label_step"):
        assert getattr(options, name, "not an option") is not None
    assert getattr(options, "response", "not an option") != "auto"


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_histories_return_the_compute_format_and_store_their_own(
    make_lazy: Callable[..., Any], precision: str, dtype: torch.dtype
) -> None:
    history = make_lazy("lazygnn", precision=precision).features
    assert history.values.read(torch.arange(2)).dtype == dtype
    assert history.values.parts["rows"].dtype == torch.float32


def test_folders_may_be_texts(block_graph: Graph, tmp_path: Path) -> None:
    config = resolve("lazygnn", "block", {"history": "disk", "num_parts": 2, "partition": "random"})
    build(config, block_graph, folder=str(tmp_path / "rows"), cache=str(tmp_path / "parts"))
    assert list((tmp_path / "rows").iterdir())


def test_a_cpu_compiles_nothing_and_warns_once(
    make: Make, block_graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    make("lazygnn")
    assert not caplog.records
    built = make("lazygnn", compile=True)
    assert all(module._compiled_call_impl is None for module in built.model.modules())
    # inference compiles nothing anyway
    build_model(resolve("lazygnn", "block", {"compile": True}), block_graph, Place(torch.device("cpu"), training=False))
    (message,) = caplog.messages
    assert message == "`compile` is for a GPU and is ignored on a CPU; set `compile=false` to silence this warning"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("values", [{"cuda_graphs": "off"}, {"precision": "bfloat16"}])
def test_a_compiled_model_trains_as_the_plain_one(block_graph: Graph, values: dict[str, Any]) -> None:
    found = []
    for compiled in (False, True):
        wanted = {"epochs": 6, "norm": "batch", "dropout": 0.0, "num_parts": 4, "partition": "random"} | values
        config = resolve("lazygnn", "block", wanted | {"compile": compiled})
        torch.manual_seed(0)
        built = build(config, block_graph, "cuda")
        losses: list[float] = []
        trainer = Trainer(built.model, built.loader, built.graph, config.trainer)
        trainer.on_epoch = lambda report, losses=losses: losses.append(report.loss)
        trainer.fit()
        found.append((losses, set(built.model.state_dict())))
    assert found[0][1] == found[1][1]
    assert found[1][0] == pytest.approx(found[0][0], rel=0.05 if values.get("precision") else 1e-3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_with_the_remedy(block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"device `cuda` is not available: torch .* finds no GPU; choose auto or cpu"):
        build(resolve("mlp", "block"), block_graph, "cuda")
    assert build(resolve("mlp", "block"), block_graph, "auto").graph.device == torch.device("cpu")
