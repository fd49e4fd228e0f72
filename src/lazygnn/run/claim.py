"""Folders of new runs: a name is claimed by one process, and a folder with the work of another is refused."""

from itertools import count
from pathlib import Path

from lazygnn.errors import ConfigError, reason
from lazygnn.files import discard, is_unfinished
from lazygnn.run.digests import DIGESTS
from lazygnn.run.lock import LOCK

# what is written before the configuration: weights that training starts from, if they are not drawn, and the scale that
# features are standardized with
INITIAL, FEATURES = "initial.safetensors", "features.json"


def claim_folder(base: Path) -> Path:
    """Creates `base`, or the first of `base-2`, `base-3`, ... that does not exist, and returns it.

    Processes that start at once get different folders.
    """
    for number in count(1):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"cannot create `{path}`: {reason(error)}; choose another `--out`") from error
        return path
    raise AssertionError


def check_unused(path: Path, remedy: str = "choose another `--out` or remove it") -> None:
    """Refuses a folder with files, so that nothing is lost; what a killed start has left does not count."""
    try:
        used = path.exists() and (not path.is_dir() or any(not _is_leftover(file) for file in path.iterdir()))
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {reason(error)}; {remedy}") from error
    if used:
        raise ConfigError(f"`{path}` exists and is not empty; {remedy}")


def make_folder(path: Path) -> None:
    """Creates the folder of a new run; removes what a killed start has left in it."""
    path.mkdir(parents=True, exist_ok=True)
    for file in [file for file in path.iterdir() if _is_leftover(file) and file.name != LOCK]:
        discard(file)


def _is_leftover(file: Path) -> bool:
    # the record of digests is written first
    begun = file.name in (INITIAL, FEATURES) and file.with_name(DIGESTS).exists()
    return file.name in (LOCK, DIGESTS) or begun or is_unfinished(file)
