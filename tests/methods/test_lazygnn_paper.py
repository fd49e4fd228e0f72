from collections.abc import Callable

import pytest

from lazygnn.errors import ConfigError
from lazygnn.history import StoredHistory
from lazygnn.methods import Built, resolve
from lazygnn.propagation import LazyPropagation, Mix

MakeLazy = Callable[..., LazyPropagation]


@pytest.mark.parametrize(("values", "weights"), [({}, (0.5, 0.5)), ({"beta": 0.6, "gamma": 0.7}, (0.6, 0.7))], ids=str)
def test_the_papers_method_mixes_features_and_gradients(
    make_lazy: MakeLazy, values: dict[str, float], weights: tuple[float, float]
) -> None:
    lazy = make_lazy("lazygnn-paper", **values)
    for history, weight in zip((lazy.features, lazy.gradients), weights, strict=True):
        assert isinstance(history, StoredHistory)
        assert history.warm == Mix(weight)


def test_the_papers_method_fits_no_response_and_takes_no_label_step(make_lazy: MakeLazy) -> None:
    assert make_lazy("lazygnn-paper").response is None
    with pytest.raises(ConfigError, match=r"`gamma` is 0\.5; it stores no gradients: set `gamma=1`"):
        resolve("lazygnn-paper", "block", {"label_step": True})


def test_the_papers_halo_has_as_many_hops_as_steps(make: Callable[..., Built]) -> None:
    paper, frozen = (make("lazygnn-paper", num_parts=4, num_layers=2, halo=halo) for halo in ("paper", "frozen"))
    for deep, shallow in zip(paper.loader.sweep(), frozen.loader.sweep(), strict=True):
        assert deep.num_targets == shallow.num_targets
        # the transform runs on the halo too
        assert len(deep.x) == len(deep.nodes) >= len(shallow.nodes) > len(shallow.x) == shallow.num_targets
