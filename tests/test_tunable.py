from lazygnn.config import TrainerOptions, allowed
from lazygnn.methods import METHODS
from lazygnn.tunable import Choices, Range


def test_a_range_changes_nothing_for_the_option_itself() -> None:
    assert TrainerOptions(lr=5.0).lr == 5.0
    assert allowed(TrainerOptions.model_fields["lr"]) == "number > 0"


def test_every_method_states_what_to_try() -> None:
    for name, method in METHODS.items():
        fields = TrainerOptions.model_fields | method.options.model_fields
        stated = {
            option for option, field in fields.items() for item in field.metadata if isinstance(item, Range | Choices)
        }
        assert {"lr", "normalize_features"} < stated, name
