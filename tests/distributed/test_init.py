import pytest

from lazygnn.distributed import is_first, is_launched, is_restarted


@pytest.mark.parametrize(
    ("environment", "launched", "first", "restarted"),
    [
        ({}, False, True, False),
        ({"RANK": "0", "WORLD_SIZE": "1"}, False, True, False),
        ({"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0"}, True, True, False),
        ({"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3"}, True, False, True),
        # some job schedulers set one of them
        ({"WORLD_SIZE": "2"}, False, True, False),
    ],
)
def test_the_environment_tells_how_a_process_was_started(
    environment: dict[str, str], launched: bool, first: bool, restarted: bool
) -> None:
    assert (is_launched(environment), is_first(environment), is_restarted(environment)) == (launched, first, restarted)
