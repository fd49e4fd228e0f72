"""The cases of the staleness study."""

from experiments.cases import CASES, DATASETS, Norm, configure


def test_the_options_of_a_case_do_not_depend_on_the_graph() -> None:
    for case in CASES:
        found = {name: configure(case, name, "batch") for name in DATASETS}
        models = [config.model.model_copy(update={"normalize_features": None}) for config in found.values()]
        assert all(model == models[0] for model in models)
        # `auto` leaves these features as they are, too
        trainers = [config.trainer.model_copy(update={"standardize_features": "off"}) for config in found.values()]
        assert all(trainer == trainers[0] for trainer in trainers)


def test_the_norm_determines_the_learning_rate_unless_a_case_has_its_own() -> None:

    def rate(case: str, norm: Norm) -> tuple[str, float]:
        config = configure(case, "cora", norm)
        return config.model.model_dump()["norm"], config.trainer.lr

    assert rate("exact, 10 steps", "none") == ("none", 0.01)
    assert rate("exact, 10 steps", "batch") == ("batch", 0.005)
    assert rate("the paper: mix 0.5, 2 steps, rate 0.002", "none") == ("none", 0.002)
