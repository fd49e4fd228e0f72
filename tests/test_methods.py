from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.config import Config, TrainerOptions, read_toml
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.history import NoHistory, StoredHistory
from lazygnn.history.warmstart import Drift, Mix
from lazygnn.methods import (
    METHODS,
    Built,
    Place,
    build,
    build_model,
    find_method,
    method_options,
    methods_with,
    place_graph,
    recipe,
    recipe_for,
    recipe_names,
    resolve,
)
from lazygnn.methods.base import Cut
from lazygnn.propagation import ExactPropagation, LazyPropagation, NoPropagation, diffuse
from lazygnn.propagation.response import fit_response
from lazygnn.training import Trainer

RECIPES = sorted(str(file.name) for file in (resources.files("lazygnn") / "recipes").iterdir())
TABLES = [(method, name) for method in METHODS for name in ["default", *recipe_names(method)]]


def make(graph: Graph, method: str, **values: Any) -> Built:
    torch.manual_seed(0)
    return build(resolve(method, "block", values), graph)


def unchecked(method: str, **values: Any) -> Config:
    """A configuration as a run of earlier days may hold it, with options that are refused now."""
    config = resolve(method, "block")
    return config.model_copy(update={"model": config.model | values})


def lazy_part(built: Built) -> LazyPropagation:
    part = built.model.propagation
    assert isinstance(part, LazyPropagation)
    return part


def stored(history: object) -> StoredHistory:
    assert isinstance(history, StoredHistory)
    return history


def test_every_recipe_file_belongs_to_a_method() -> None:
    assert sorted(f"{method}.toml" for method in METHODS) == RECIPES


@pytest.mark.parametrize(("method", "name"), TABLES)
def test_every_recipe_resolves_for_its_method(method: str, name: str) -> None:
    table = recipe(method, name)
    assert isinstance(table, dict)
    config = resolve(method, name, {})
    for option, value in table.items():
        group = config.trainer.model_dump() if option in TrainerOptions.model_fields else config.model
        assert group[option] == value


@pytest.mark.parametrize("method", list(METHODS))
def test_every_option_says_what_it_is(method: str) -> None:
    fields = TrainerOptions.model_fields | find_method(method).options.model_fields
    assert not [name for name, field in fields.items() if not field.description]
    assert METHODS[method].summary


def test_no_option_belongs_to_trainer_and_method_alike() -> None:
    for method in METHODS.values():
        assert not TrainerOptions.model_fields.keys() & method.options.model_fields.keys()


def test_a_recipe_is_found_by_name_and_by_the_name_of_a_file() -> None:
    tables = read_toml(Path(str(resources.files("lazygnn") / "recipes" / "appnp.toml")))
    assert recipe("appnp", "cora") == tables["cora"] == recipe("appnp", "some/where/cora.npz")
    assert recipe("appnp", "unheard-of") == tables["default"]
    found = [recipe_for("appnp", name) for name in ("cora", "some/where/cora.npz", "unheard-of", "default")]
    assert found == ["cora", "cora", "default", "default"]
    assert "default" not in recipe_names("appnp")


def test_values_come_before_the_recipe_and_the_recipe_before_defaults() -> None:
    config = resolve("appnp", "cora", {"alpha": 0.5})
    assert config.model["alpha"] == 0.5
    assert config.trainer.weight_decay == recipe("appnp", "cora")["weight_decay"] != TrainerOptions().weight_decay
    assert config.trainer.eval_every == TrainerOptions().eval_every


def test_an_unknown_method_names_the_nearest_or_all() -> None:
    with pytest.raises(ConfigError, match=r"unknown method `lazygn`; did you mean `lazygnn`\?"):
        resolve("lazygn", "cora", {})
    with pytest.raises(ConfigError, match=r"unknown method `GCN`; did you mean `gcn`\?"):
        resolve("GCN", "cora", {})
    with pytest.raises(ConfigError, match=r"unknown method `xyz`; choose one of: mlp, appnp"):
        recipe("xyz", "cora")
    with pytest.raises(ConfigError, match=r"unknown method `xyz`; choose one of: mlp, appnp, lazygnn, lazygnn-paper"):
        resolve("xyz", "cora", {})


def test_an_option_of_other_methods_names_them() -> None:
    owners = "lazygnn, lazygnn-paper, gcn-gas, gcnii-gas, appnp-gas, cluster-gcn"
    assert ", ".join(methods_with("num_parts")) == owners
    with pytest.raises(ConfigError, match=f"^method `gcn` has no option `num_parts`; these have it: {owners}$"):
        resolve("gcn", "cora", {"num_parts": 4})


def test_an_option_of_training_belongs_to_all_methods_and_one_like_it_to_none() -> None:
    assert methods_with("epochs") == list(METHODS)
    assert methods_with("epoch") == []
    with pytest.raises(ConfigError, match=r"unknown option `num_layer`; did you mean `num_layers`\?"):
        resolve("gcn", "cora", {"num_layer": 4})


@pytest.mark.parametrize("method", [method for method in METHODS if method != "label-propagation"])
@pytest.mark.parametrize("values", [{}, {"prop_channels": 5, "norm": "batch", "mlp_layers": 3}], ids=["plain", "wide"])
def test_every_method_that_learns_takes_a_step(block_graph: Graph, method: str, values: dict[str, Any]) -> None:
    known = find_method(method).options.model_fields
    built = make(block_graph, method, **{name: value for name, value in values.items() if name in known})
    (batch,) = built.loader
    out = built.model(batch)
    assert out.shape == (batch.num_targets, 3)
    (batch.weight * block_graph.task.loss(out, batch.y)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in built.model.parameters())
    assert any(bool(p.grad.abs().sum() > 0) for p in built.model.parameters() if p.grad is not None)
    assert built.model.infer(built.graph).shape == (60, 3)


def test_the_same_seed_builds_the_same_weights(block_graph: Graph) -> None:
    first, second = (make(block_graph, "lazygnn").model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_each_method_has_its_propagation(block_graph: Graph) -> None:
    assert isinstance(make(block_graph, "mlp").model.propagation, NoPropagation)
    exact = make(block_graph, "appnp", alpha=0.3, num_layers=7)
    assert isinstance(exact.model.propagation, ExactPropagation)
    assert (exact.model.propagation.alpha, exact.model.propagation.eval_layers) == (0.3, 7)


def test_lazygnn_drifts_and_keeps_no_gradients_by_default(block_graph: Graph) -> None:
    lazy = lazy_part(make(block_graph, "lazygnn", beta=0.2))
    assert stored(lazy.features).warm == Drift(0.2)
    assert isinstance(lazy.gradients, NoHistory)
    assert stored(lazy_part(make(block_graph, "lazygnn", gamma=0.4)).gradients).warm == Drift(0.4)


@pytest.mark.parametrize(("num_layers", "mix"), [(1, 1 - 0.9**0.5), (2, 0.1), (4, 0.19)])
def test_the_mix_grows_with_the_steps_so_that_the_reach_stays(block_graph: Graph, num_layers: int, mix: float) -> None:
    warm = stored(lazy_part(make(block_graph, "lazygnn", num_layers=num_layers)).features).warm
    assert isinstance(warm, Drift)
    assert warm.mix == pytest.approx(mix)


def test_the_papers_method_mixes_features_and_gradients(block_graph: Graph) -> None:
    lazy = lazy_part(make(block_graph, "lazygnn-paper", beta=0.6, gamma=0.7))
    assert stored(lazy.features).warm == Mix(0.6)
    assert stored(lazy.gradients).warm == Mix(0.7)


def test_histories_are_as_wide_as_what_is_propagated(block_graph: Graph) -> None:
    lazy = lazy_part(make(block_graph, "lazygnn", prop_channels=5))
    # result and input of a pass
    assert lazy.features.num_bytes == 2 * 60 * 5 * 4


def test_inference_options_reach_the_propagation(block_graph: Graph) -> None:
    lazy = lazy_part(make(block_graph, "lazygnn", eval_layers=4, eval_tolerance=1e-3))
    assert (lazy.eval_layers, lazy.eval_tolerance) == (4, 1e-3)


@pytest.mark.parametrize(("method", "num_layers"), [("mlp", 0), ("appnp", 10), ("lazygnn", 2)])
def test_batches_have_as_many_layers_as_a_pass(block_graph: Graph, method: str, num_layers: int) -> None:
    (batch,) = make(block_graph, method).loader
    assert isinstance(batch, Batch)
    assert len(batch.adjs) == num_layers


def test_features_are_normalised_where_asked(block_graph: Graph) -> None:
    plain, scaled = (make(block_graph, "mlp", normalize_features=flag).graph.x for flag in (False, True))
    assert plain is block_graph.x
    assert isinstance(scaled, Tensor)
    torch.testing.assert_close(scaled.abs().sum(dim=1), torch.ones(60))


def test_values_may_be_left_out_and_a_data_set_may_be_a_path() -> None:
    assert resolve("appnp", "cora") == resolve("appnp", "cora", {})
    assert resolve("appnp", Path("some/cora.npz")) == resolve("appnp", "some/cora.npz", {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["mlp"], "cora"), r"unknown method `\['mlp'\]`; choose one of: mlp"),
        (("mlp", torch.ones(2)), r"`dataset` is of type Tensor and shape \(2,\); give a name or a path"),
        (("mlp", "cora", ["lr=1"]), r"`values` is \['lr=1'\], of type list; give options by name, such as"),
    ],
)
def test_what_cannot_be_resolved_is_named(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(*arguments)


def test_what_cannot_be_built_is_named(block_graph: Graph) -> None:
    config: Any = resolve("mlp", "block")
    with pytest.raises(GraphError, match=r"`graph` is 'cora', of type str; make a graph with `load_graph`, `Graph\."):
        build(config, "cora")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"`config` is 'mlp', of type str; make one with `resolve\(method, dataset\)`"
    ):
        build("mlp", block_graph)  # type: ignore[arg-type]


def test_a_method_without_weights_is_not_trained(block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match="`label-propagation` has no weights to train; set `epochs=0`"):
        make(block_graph, "label-propagation", epochs=3)
    assert not list(make(block_graph, "label-propagation").model.parameters())


def test_more_parts_in_a_batch_than_there_are_is_refused(block_graph: Graph) -> None:
    config = resolve("lazygnn", "some", {"num_parts": 4, "parts_per_batch": 9})
    with pytest.raises(ConfigError, match="`parts_per_batch` is 9, `num_parts` 4"):
        build(config, block_graph)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        (
            "cluster-gcn",
            {"parts_per_batch": 4},
            "`parts_per_batch` is 4, `num_parts` 1, which is a full batch; set `num_parts` too, or leave",
        ),
        ("gcn-gas", {"partition": "random"}, "`partition` is random, `num_parts` 1, .*, or leave `partition` out"),
        ("lazygnn", {"halo": "paper"}, "`halo` is paper, `num_parts` 1, which is a full batch; set `num_parts` too"),
        ("lazygnn-paper", {"halo": "frozen", "num_parts": 1}, "`halo` is frozen, `num_parts` 1, which is a full batch"),
        ("cluster-gcn", {"keep_batches": False}, "`keep_batches` is false, `num_parts` 1, which is a full batch; set"),
        ("lazygnn", {"halo_gradients": True}, "`halo_gradients` is true, `num_parts` 1, .*leave `halo_gradients` out"),
        (
            "lazygnn",
            {"level": 0.9, "start": "mix"},
            "`level` is 0.9, `start` mix, .*; set `start=drift`, or leave `lev",
        ),
        ("lazygnn-paper", {"level": 0.8}, "`level` is 0.8, `start` mix, with which no answer is fitted"),
        ("lazygnn", {"level": 0.9, "response": "plain"}, "`level` is 0.9, `response` plain, .*; set `response=fitted`"),
        (
            "lazygnn",
            {"halo": "none", "halo_gradients": True, "num_parts": 4},
            "`halo_gradients` is true, `halo` none; .*: set `halo=frozen`, or leave `halo_gradients` out",
        ),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(method: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(method, "some", values)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        # the recipe draws several parts, which a full batch does not need
        ("cluster-gcn", {"num_parts": 1}),
        ("lazygnn", {"parts_per_batch": 1}),
        ("lazygnn-paper", {"level": 0.9, "start": "drift"}),
        ("lazygnn", {"halo": "none", "halo_gradients": False, "num_parts": 4}),
        ("lazygnn", {"halo": "frozen", "partition": "metis", "keep_batches": True, "halo_gradients": False}),
        ("lazygnn-paper", {"halo": "paper"}),
        # the recipe cuts the graph
        ("gcn-gas", {"partition": "random", "keep_batches": False}),
    ],
)
def test_what_a_recipe_or_a_default_says_is_not_refused(method: str, values: dict[str, Any]) -> None:
    config = resolve(method, "cora", values)
    assert {name: config.model[name] for name in values} == values


def test_a_run_made_before_an_option_was_refused_is_built_as_it_was(block_graph: Graph) -> None:
    old = unchecked("lazygnn-paper", level=0.9, parts_per_batch=4, halo="frozen", keep_batches=False)
    assert lazy_part(build(old, block_graph)).response is None


def test_pinned_histories_on_a_cpu_are_warned_about_once(block_graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    make(block_graph, "lazygnn", history="host", gamma=0.5)
    assert not caplog.records
    make(block_graph, "lazygnn", history="pinned", gamma=0.5)
    (message,) = caplog.messages
    assert message.startswith("`history` is pinned, which is for a GPU; on a CPU it is the same as `device`: set `hist")


def test_edges_do_not_leave_the_device_before_the_features(block_graph: Graph) -> None:
    message = r"`features` is device, `edges` host; .*: set `features=host` too, or leave `edges` empty"
    for num_parts in (1, 4):
        with pytest.raises(ConfigError, match=message):
            make(block_graph, "lazygnn", num_parts=num_parts, edges="host")
    with pytest.raises(ConfigError, match="option `edges` is 'disk'"):
        make(block_graph, "lazygnn", edges="disk")


@pytest.mark.parametrize("num_parts", [1, 4])
@pytest.mark.parametrize("method", ["lazygnn", "gcn-gas", "cluster-gcn"])
def test_features_alone_stay_in_host_memory_where_asked(block_graph: Graph, method: str, num_parts: int) -> None:
    def devices(**values: Any) -> set[tuple[str, str]]:
        options = {"num_parts": num_parts, "features": "host", **values}
        config = resolve(method, "block", options)
        graph = place_graph(config, block_graph, torch.device("meta"))
        assert graph.device.type == "cpu"
        cut = Cut(graph, torch.arange(0, 61, 60 // num_parts), 0)
        batches = find_method(method).loader(method_options(config), cut, Place(torch.device("meta"))).sweep()
        return {(b.x.device.type, rest.type) for b in batches for rest in (b.nodes.device, *(a.device for a in b.adjs))}

    assert devices(edges="device") == {("cpu", "meta")}
    assert devices(edges="host") == devices() == devices(edges="none") == {("cpu", "cpu")}


def test_gradients_are_kept_for_the_halo_where_asked(block_graph: Graph) -> None:
    lazy = lazy_part(make(block_graph, "lazygnn", num_parts=4, halo_gradients=True))
    assert isinstance(lazy.gradients, StoredHistory)
    assert lazy.gradients.warm == Mix(1.0)
    both = lazy_part(make(block_graph, "lazygnn", num_parts=4, halo_gradients=True, gamma=0.5))
    assert isinstance(both.gradients, StoredHistory)
    assert both.gradients.warm == Drift(0.5)


def test_gradients_for_the_halo_change_nothing_where_there_is_none(block_graph: Graph) -> None:
    grads = []
    for kept in (False, True):
        torch.manual_seed(0)
        config = unchecked("lazygnn", halo_gradients=kept, label_step=False, dropout=0.0, level=0.5)
        built = build(config, block_graph)
        built.model.train()
        batch = next(iter(built.loader))
        weights = list(built.model.parameters())
        # the first visit, which finds no history, and a second one
        grads += [torch.autograd.grad(built.model(batch).square().sum(), weights) for _ in range(2)]
    for without, kept_too in zip(grads[:2], grads[2:], strict=True):
        for one, other in zip(without, kept_too, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("values", [{}, {"response": "plain"}, {"start": "mix"}], ids=str)
def test_a_step_is_taken_on_labelled_rows_where_asked(block_graph: Graph, values: dict[str, Any]) -> None:
    built = make(block_graph, "lazygnn", label_step=True, num_layers=1, dropout=0.0, **values)
    (batch,) = built.loader
    assert batch.labelled is not None
    assert torch.equal(batch.labelled.rows, block_graph.masks["train"].nonzero()[:, 0])
    prop, x = lazy_part(built), torch.rand(block_graph.num_nodes, 3, generator=torch.Generator().manual_seed(0))
    out = prop.train()(x, batch)
    twice = diffuse([block_graph.adj] * 2, x, x, 0.1)
    torch.testing.assert_close(out[batch.labelled.rows], twice[batch.labelled.rows])
    if not values:
        assert prop.response == fit_response(block_graph.adj, 0.1, 1, further=1, beta=1 - 0.9**0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"num_parts": 4},
            "needs the whole graph in a batch, `num_parts` is 4; set it to 1, or leave `label_step` out",
        ),
        ({"gamma": 0.5}, "keeps no gradient, `gamma` is 0.5; set `gamma=1`, or leave `label_step` out"),
        (
            {"halo_gradients": True},
            "keeps no gradient, `halo_gradients` is true; leave that out, or leave `label_step` out",
        ),
    ],
)
def test_a_step_on_labelled_rows_has_its_conditions(block_graph: Graph, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("lazygnn", "block", values | {"label_step": True})
    # where nothing is asked for, it is left out
    assert next(iter(build(unchecked("lazygnn", **values), block_graph).loader)).labelled is None
    # a configuration that was not resolved here
    with pytest.raises(ConfigError, match=message):
        build(unchecked("lazygnn", **values, label_step=True), block_graph)
    with pytest.raises(ConfigError, match=r"`gamma` is 0\.5; set `gamma=1`"):
        resolve("lazygnn-paper", "block", {"label_step": True})


def test_a_response_is_fitted_to_the_graph_where_asked(block_graph: Graph) -> None:
    assert lazy_part(make(block_graph, "lazygnn", response="plain")).response is None
    assert lazy_part(make(block_graph, "lazygnn", start="mix")).response is None
    assert lazy_part(make(block_graph, "lazygnn-paper")).response is None
    default = lazy_part(make(block_graph, "lazygnn"))
    assert default.response == fit_response(block_graph.adj, 0.1, 2, further=1, beta=0.1)
    values = {"response": "fitted", "num_layers": 3, "level": 0.9, "beta": 0.0, "label_step": False}
    assert lazy_part(make(block_graph, "lazygnn", **values)).response == fit_response(
        block_graph.adj, 0.1, 3, level=0.9
    )
    with pytest.raises(ConfigError, match="`response=fitted` looks at changes of the input, which `start=drift` keeps"):
        make(block_graph, "lazygnn", response="fitted", start="mix")


@pytest.mark.parametrize(
    ("method", "values", "chosen"),
    [
        ("lazygnn", {"num_layers": 4}, {"beta": 0.19, "response": "fitted", "label_step": True, "level": 0.85}),
        ("lazygnn", {"num_parts": 4}, {"beta": 0.1, "response": "fitted", "label_step": False, "level": 0.8}),
        ("lazygnn", {"gamma": 0.5}, {"beta": 0.1, "response": "fitted", "label_step": False, "level": 0.8}),
        ("lazygnn", {"halo_gradients": True}, {"beta": 0.1, "response": "fitted", "label_step": False, "level": 0.8}),
        (
            "lazygnn",
            {"label_step": False, "level": 0.9},
            {"beta": 0.1, "response": "fitted", "label_step": False, "level": 0.9},
        ),
        (
            "lazygnn",
            {"response": "plain", "beta": 0.123456789},
            {"beta": 0.123456789, "response": "plain", "label_step": False},
        ),
        ("lazygnn-paper", {}, {"beta": 0.5, "response": "plain", "label_step": False}),
        ("gcn-gas", {}, {}),
    ],
)
def test_what_is_left_open_is_chosen(method: str, values: dict[str, Any], chosen: dict[str, Any]) -> None:
    assert method_options(unchecked(method, **values)).chosen() == chosen


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_histories_hand_out_what_is_propagated(block_graph: Graph, precision: str, dtype: torch.dtype) -> None:
    history = stored(lazy_part(make(block_graph, "lazygnn", precision=precision)).features)
    assert history.values.read(torch.arange(2)).dtype == dtype
    assert history.values.parts["rows"].dtype == torch.float32


def test_a_cpu_compiles_nothing_and_says_so_once(block_graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    make(block_graph, "lazygnn")
    assert not caplog.records
    built = make(block_graph, "lazygnn", compile=True)
    assert all(module._compiled_call_impl is None for module in built.model.modules())
    # nothing is trained, so nothing is left out
    build_model(resolve("lazygnn", "block", {"compile": True}), block_graph, Place(torch.device("cpu"), training=False))
    assert caplog.messages == ["`compile` is for a GPU and is ignored on a CPU; set `compile=false` to silence this"]


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
