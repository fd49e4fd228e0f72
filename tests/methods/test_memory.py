import pytest
import torch

from lazygnn import build, resolve
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import memory
from lazygnn.methods.memory import within_memory
from lazygnn.methods.options import ClusterOptions

OPTIONS = ClusterOptions(num_parts=5000)


def make(count: int, size: int) -> None:
    with within_memory(OPTIONS):
        for _ in range(count):
            torch.zeros(size)


def test_small_tensors_are_made() -> None:
    with within_memory(OPTIONS):
        made = [torch.empty(3, 4), torch.zeros((3,)), torch.full((2, 2), 1.0), torch.ones(size=(2,), dtype=torch.int8)]
    assert [each.numel() for each in made] == [12, 3, 4, 2]


@pytest.mark.parametrize("shape", [(10**12,), (10**30,), (10**6, 10**6, 10**6)])
def test_a_tensor_beyond_memory_is_refused_before_it_is_made(shape: tuple[int, ...]) -> None:
    with (
        pytest.raises(
            ConfigError, match=r"a model with `num_parts=5000` takes at least .* [TP]B of memory, but .* are free"
        ),
        within_memory(OPTIONS),
    ):
        torch.empty(*shape)


def test_the_sum_of_all_tensors_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(ConfigError, match=r"takes at least 1.2 kB of memory, but 1 kB are free"):
        make(3, 100)


def test_a_model_of_too_many_layers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_TENSORS", 10)
    with pytest.raises(ConfigError, match=r"has more than 10 tensors; choose fewer layers"):
        make(11, 1)


@pytest.mark.parametrize(("error", "raised"), [(MemoryError(), ConfigError), (RuntimeError("else"), RuntimeError)])
def test_an_error_of_memory_is_one_of_the_options(error: Exception, raised: type[Exception]) -> None:
    with pytest.raises(raised), within_memory(OPTIONS):
        raise error


@pytest.mark.parametrize("method", ["lazygnn", "gcn", "graphsage", "lazygnn-deep"])
def test_a_wide_model_is_refused_with_its_memory(path_graph: Graph, method: str) -> None:
    config = resolve(method, "path", {"hidden_channels": 10**12})
    message = r"a model with `hidden_channels=1000000000000` takes at least .* [TP]B of memory"
    with pytest.raises(ConfigError, match=message):
        build(config, path_graph)


def test_a_deep_model_is_refused(path_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_TENSORS", 1000)
    config = resolve("mlp", "path", {"mlp_layers": 10_000, "hidden_channels": 1})
    with pytest.raises(ConfigError, match=r"`mlp_layers=10000` has more than 1000 tensors"):
        build(config, path_graph)
    with pytest.raises(ConfigError, match=r"option `mlp_layers` is 1000000000: input should be less than or equal to"):
        resolve("mlp", "path", {"mlp_layers": 10**9})
