import errno
import hashlib
import json
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lazygnn.errors import CheckpointError
from lazygnn.run import tensor_file
from lazygnn.run.checkpoint import Checkpoint, CheckpointFolder
from lazygnn.run.record import MAX_RECORD, seal

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = ((), (0,), (3, 0, 2), (1,), (7,), (3, 5), (2, 3, 4, 1))


class Crash(BaseException):
    """No `except Exception` stops it."""


def bits(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def identical(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and bits(left) == bits(right)


def tensors_of(number: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(number)
    return {
        "weight": torch.randn(5, 7, generator=generator),
        "rows": torch.randn(9, 2, generator=generator).bfloat16(),
        "step": torch.tensor(number),
    }


def state_of(number: int) -> dict[str, Any]:
    return {"epoch": number, "seed": 2**63 + number, "losses": [1 / (number + 1), 0.1], "best": None}


def save(folder: CheckpointFolder, number: int) -> None:
    folder.save(number, tensors_of(number), state_of(number))


def is_whole(checkpoint: Checkpoint | None, number: int) -> bool:
    expected = tensors_of(number)
    return (
        checkpoint is not None
        and checkpoint.number == number
        and checkpoint.state == state_of(number)
        and checkpoint.tensors.keys() == expected.keys()
        and all(identical(checkpoint.tensors[name], value) for name, value in expected.items())
    )


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def files_of(path: Path, number: int) -> tuple[Path, Path]:
    return path / f"checkpoint-{number:09d}.safetensors", path / f"checkpoint-{number:09d}.json"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with the checkpoints 1 and 2."""
    path = tmp_path / "two"
    for number in (1, 2):
        save(CheckpointFolder(path), number)
    return path


class TestRoundTrip:
    def test_every_type_and_shape_is_read_back_bit_for_bit(self, tmp_path: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        tensors = {}
        for dtype in (*FLOATS, *INTEGERS, torch.bool):
            for shape in SHAPES:
                # random bits are numbers of all kinds, NaNs with payloads among them
                high = 2 if dtype == torch.bool else 256
                raw = torch.randint(0, high, (*shape, dtype.itemsize), dtype=torch.uint8, generator=generator)
                tensors[f"{dtype}{shape}"] = raw.view(dtype).reshape(shape)
        CheckpointFolder(tmp_path).save(3, tensors, {})
        found = CheckpointFolder(tmp_path).load_latest()
        assert found is not None
        assert list(found.tensors) == list(tensors)
        assert all(identical(found.tensors[name], tensors[name]) for name in tensors)
        assert {tensor.device.type for tensor in found.tensors.values()} == {"cpu"}

    def test_payloads_of_nans_survive(self, tmp_path: Path) -> None:
        nans = torch.tensor([0x7FC12345, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
        brain = torch.tensor([0x7FC1, 0x7F81, -1], dtype=torch.int16).view(torch.bfloat16)
        CheckpointFolder(tmp_path).save(0, {"nans": nans, "brain": brain}, {})
        found = CheckpointFolder(tmp_path).load_latest()
        assert found is not None
        assert found.tensors["nans"].view(torch.int32).tolist() == [0x7FC12345, 0x7F800001, -1]
        assert found.tensors["brain"].view(torch.int16).tolist() == [0x7FC1, 0x7F81, -1]

    def test_any_strides_and_shared_memory_are_saved_by_value(self, tmp_path: Path) -> None:
        base = torch.arange(60.0).reshape(3, 4, 5)
        tensors = {
            "base": base,
            "transposed": base.permute(2, 0, 1),
            "every other": base[:, ::2, 1::3],
            "expanded": torch.tensor([1.5]).expand(4, 3),
            "parameter": torch.nn.Parameter(base[0]),
            "negated": torch.tensor([1 + 2j]).conj().imag,
        }
        CheckpointFolder(tmp_path).save(0, tensors, {})
        found = CheckpointFolder(tmp_path).load_latest()
        assert found is not None
        assert all(torch.equal(found.tensors[name], value) for name, value in tensors.items())

    def test_the_tensor_file_is_plain_safetensors(self, tmp_path: Path) -> None:
        save(CheckpointFolder(tmp_path / "ours"), 1)
        ours = files_of(tmp_path / "ours", 1)[0]
        save_file(tensors_of(1), tmp_path / "theirs.safetensors")
        theirs = load_file(tmp_path / "theirs.safetensors")
        assert load_file(ours).keys() == theirs.keys()
        assert all(identical(value, theirs[name]) for name, value in load_file(ours).items())
        # each tensor starts where its type may
        assert all(value.data_ptr() % value.element_size() == 0 for value in load_file(ours).values())

    def test_a_checkpoint_may_have_no_tensors_and_no_state(self, tmp_path: Path) -> None:
        CheckpointFolder(tmp_path).save(0, {}, {})
        assert CheckpointFolder(tmp_path).load_latest() == Checkpoint(0, {}, {})

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
    def test_tensors_on_a_gpu_pass_through_the_cpu_in_pieces(self, tmp_path: Path) -> None:
        large = torch.arange(5 * 2**20, device="cuda").reshape(5, -1)
        CheckpointFolder(tmp_path).save(0, {"rows": large, "columns": large.T}, {})
        found = CheckpointFolder(tmp_path).load_latest()
        assert found is not None
        assert torch.equal(found.tensors["rows"], large.cpu())
        assert torch.equal(found.tensors["columns"], large.T.cpu())

    def test_loaded_tensors_can_be_changed_and_saved_under_the_same_number(self, tmp_path: Path) -> None:
        folder = CheckpointFolder(tmp_path)
        save(folder, 1)
        found = folder.load_latest()
        assert found is not None
        found.tensors["weight"].add_(1)
        folder.save(1, found.tensors, found.state)
        again = folder.load_latest()
        assert again is not None
        assert torch.equal(again.tensors["weight"], tensors_of(1)["weight"] + 1)
        assert torch.equal(again.tensors["rows"], tensors_of(1)["rows"])


class TestArguments:
    def test_what_cannot_be_saved_is_refused_before_a_file_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"tensor `x` has type torch.complex64"):
            CheckpointFolder(tmp_path).save(0, {"x": torch.ones(2, dtype=torch.complex64)}, {})
        with pytest.raises(ValueError, match=r"`state.loss` is nan"):
            CheckpointFolder(tmp_path).save(0, {"x": torch.ones(2)}, {"loss": float("nan")})
        assert names(tmp_path) == []

    def test_numbers_are_not_negative_and_one_checkpoint_stays(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="`number` must not be negative, got -1"):
            CheckpointFolder(tmp_path).save(-1, {}, {})
        with pytest.raises(ValueError, match="`keep` must be at least 1, got 0"):
            CheckpointFolder(tmp_path, keep=0)


class TestKeeping:
    @pytest.mark.parametrize("keep", [1, 2, 3])
    def test_the_newest_stay(self, tmp_path: Path, keep: int) -> None:
        folder = CheckpointFolder(tmp_path / "a", keep=keep)
        for number in (0, 5, 7, 10**9, 10**10):
            save(folder, number)
            assert is_whole(CheckpointFolder(folder.path).load_latest(), number)
        kept = [0, 5, 7, 10**9, 10**10][-keep:]
        assert names(folder.path) == sorted(file.name for number in kept for file in files_of(folder.path, number))

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        others = ["best.safetensors", "checkpoint-1.json", "checkpoint-0000000001.json", "checkpoint-x.json", "a.tmp"]
        for name in others:
            (tmp_path / name).write_text("mine")
        assert CheckpointFolder(tmp_path).load_latest() is None
        for number in range(4):
            save(CheckpointFolder(tmp_path, keep=1), number)
        assert set(names(tmp_path)) == {*others, *(file.name for file in files_of(tmp_path, 3))}

    def test_leftovers_of_a_crash_are_removed(self, two: Path) -> None:
        for name in ("checkpoint-000000003.json.tmp", "checkpoint-000000009.safetensors.tmp"):
            (two / name).write_bytes(b"half")
        files_of(two, 0)[0].write_bytes(b"a half without its record")
        save(CheckpointFolder(two), 3)
        assert names(two) == sorted(file.name for number in (2, 3) for file in files_of(two, number))

    def test_a_corrupt_checkpoint_does_not_count(self, two: Path) -> None:
        files_of(two, 2)[0].write_bytes(b"broken")
        folder = CheckpointFolder(two)
        assert is_whole(folder.load_latest(), 1)
        save(folder, 3)
        assert names(two) == sorted(file.name for number in (1, 3) for file in files_of(two, number))

    def test_a_corrupt_checkpoint_that_is_saved_again_is_valid(self, two: Path) -> None:
        files_of(two, 2)[0].write_bytes(b"broken")
        folder = CheckpointFolder(two)
        assert is_whole(folder.load_latest(), 1)
        save(folder, 2)
        assert is_whole(folder.load_latest(), 2)

    def test_a_number_below_a_valid_one_is_refused_and_below_a_corrupt_one_is_not(self, two: Path) -> None:
        with pytest.raises(CheckpointError, match=r"cannot save checkpoint 0: `.*two` already has 2, .* resume from"):
            save(CheckpointFolder(two), 0)
        files_of(two, 2)[1].unlink()
        save(CheckpointFolder(two), 1)
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        assert names(two) == sorted(file.name for file in files_of(two, 1))

    def test_what_cannot_be_removed_does_not_stop_training(self, two: Path, caplog: pytest.LogCaptureFixture) -> None:
        files_of(two, 0)[0].mkdir()
        save(CheckpointFolder(two), 3)
        assert "cannot remove" in caplog.text
        assert is_whole(CheckpointFolder(two).load_latest(), 3)


class TestNothingToLoad:
    def test_an_empty_or_missing_folder_has_none(self, tmp_path: Path) -> None:
        assert CheckpointFolder(tmp_path).load_latest() is None
        assert CheckpointFolder(tmp_path / "missing").load_latest() is None

    def test_a_file_is_not_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointError, match=r"cannot read the checkpoint folder `.*file`"):
            CheckpointFolder(tmp_path / "file").load_latest()
        with pytest.raises(CheckpointError, match=r"cannot read the checkpoint folder `.*file`"):
            CheckpointFolder(tmp_path / "file").save(0, {}, {})
        with pytest.raises(CheckpointError, match="cannot"):
            CheckpointFolder(tmp_path / "file" / "below").save(0, {}, {})


class Faults:
    """Counts the calls that reach the disk and runs `act` at the chosen one; a chosen write has written half."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[str, int], None]) -> None:
        self.counts: dict[str, int] = {}
        self.log: list[str] = []
        self.act = act
        opened = Path.open

        def open_(path: Path, mode: str = "r", **options: Any) -> Any:
            file = opened(path, mode, **options)
            return _Half(file, self) if "x" in mode else file

        monkeypatch.setattr(Path, "open", open_)
        for name in ("fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any, **options: Any) -> None:
            self.met(name)
            call(*arguments, **options)

        return watched

    def met(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        self.log.append(name)
        self.act(name, self.counts[name])


class _Half:
    def __init__(self, file: IO[bytes], faults: Faults) -> None:
        self.file, self.faults = file, faults
        self.flush, self.fileno = file.flush, file.fileno

    def __enter__(self) -> "_Half":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        half = len(data) // 2
        self.file.write(data[:half])
        self.file.flush()
        self.faults.met("write")
        self.file.write(data[half:])


def calls_of_a_save(path: Path) -> list[tuple[str, int]]:
    copy = path.with_name("rehearsal")
    shutil.copytree(path, copy)
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, lambda *_: None)
        save(CheckpointFolder(copy), 3)
    return [(name, k) for name, count in faults.counts.items() for k in range(1, count + 1)]


def moments(path: Path, saving: Callable[[], None]) -> list[Path]:
    """Copies of a folder before every call of a save that reaches the disk."""
    seen: list[Path] = []

    def act(name: str, count: int) -> None:
        seen.append(path.with_name(f"moment{len(seen)}"))
        shutil.copytree(path, seen[-1])

    with pytest.MonkeyPatch.context() as patch:
        Faults(patch, act)
        saving()
    return seen


class TestCrash:
    @pytest.mark.parametrize(
        "error", [OSError(errno.EIO, "input/output error"), Crash("power")], ids=["error", "crash"]
    )
    def test_a_failure_at_any_call_leaves_the_old_or_the_new(self, two: Path, error: BaseException) -> None:
        calls = calls_of_a_save(two)
        assert {name for name, _ in calls} == {"write", "fsync", "replace", "unlink"}
        for number, (name, k) in enumerate(calls):
            path = two.with_name(f"case{number}")
            shutil.copytree(two, path)

            def act(met: str, count: int, wanted: tuple[str, int] = (name, k)) -> None:
                if (met, count) == wanted:
                    raise error

            with pytest.MonkeyPatch.context() as patch:
                Faults(patch, act)
                try:
                    save(CheckpointFolder(path), 3)
                    failed = False
                except (CheckpointError, Crash):
                    failed = True
            # a file that cannot be removed is only a warning
            assert failed == (name != "unlink" or isinstance(error, Crash))
            assert not [file for file in names(path) if file.endswith(".tmp")]
            found = CheckpointFolder(path).load_latest()
            assert is_whole(found, 2) or is_whole(found, 3)
            save(CheckpointFolder(path), 4)
            assert is_whole(CheckpointFolder(path).load_latest(), 4)

    def test_the_folder_is_valid_at_every_moment(self, two: Path) -> None:
        """A crash leaves what the folder held at that moment, temporary files and all."""
        seen = moments(two, lambda: save(CheckpointFolder(two), 3))
        numbers = []
        for moment in [*seen, two]:
            # there is never a record without its tensors
            assert all(file.with_suffix(".safetensors").is_file() for file in moment.glob("*.json"))
            found = CheckpointFolder(moment).load_latest()
            assert found is not None
            assert is_whole(found, found.number)
            numbers.append(found.number)
            save(CheckpointFolder(moment), 4)
            assert not [file for file in names(moment) if file.endswith(".tmp")]
        # the new one appears once and stays
        assert set(numbers) == {2, 3}
        assert numbers == sorted(numbers)

    def test_content_reaches_the_disk_before_its_name(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without these flushes a loss of power could leave a name on a file that is not there yet."""
        faults = Faults(monkeypatch, lambda *_: None)
        save(CheckpointFolder(two), 3)
        order = [name for k, name in enumerate(faults.log) if name != "write" or faults.log[k - 1] != "write"]
        assert order == ["write", "fsync", "write", "fsync", *["replace", "fsync"] * 2, *["unlink"] * 2]

    def test_saving_a_number_again_costs_at_most_that_number(self, two: Path) -> None:
        seen = moments(two, lambda: CheckpointFolder(two).save(2, {"x": torch.ones(2)}, {}))
        found = [CheckpointFolder(moment).load_latest() for moment in seen]
        assert all(is_whole(each, 1) or is_whole(each, 2) or (each and each.state == {}) for each in found)

    @pytest.mark.parametrize("saved_before", [False, True])
    def test_the_only_checkpoint_is_whole_or_none_at_every_moment(self, tmp_path: Path, saved_before: bool) -> None:
        path = tmp_path / "one"
        path.mkdir()
        if saved_before:
            CheckpointFolder(path).save(1, {"x": torch.ones(2)}, {})
        seen = moments(path, lambda: save(CheckpointFolder(path), 1))
        found = [CheckpointFolder(moment).load_latest() for moment in seen]
        assert any(each is None for each in found)
        assert all(each is None or is_whole(each, 1) or each.state == {} for each in found)
        for moment in seen:
            save(CheckpointFolder(moment), 1)
            assert is_whole(CheckpointFolder(moment).load_latest(), 1)

    def test_a_folder_that_was_removed_is_not_made_again(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="No such file or directory"):
            save(CheckpointFolder(tmp_path / "run" / "checkpoints"), 1)
        assert list(tmp_path.iterdir()) == []


class TestFullDisk:
    def test_nothing_is_written_without_enough_space(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = {file: file.read_bytes() for file in two.iterdir()}
        save(CheckpointFolder(two.with_name("other")), 3)
        needed = sum(file.stat().st_size for file in files_of(two.with_name("other"), 3))
        usage = shutil.disk_usage(two)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
        message = rf"cannot save `.*000000003.safetensors`, which needs {needed:,} bytes: the disk is full; free that"
        with pytest.raises(CheckpointError, match=message):
            save(CheckpointFolder(two), 3)
        assert {file: file.read_bytes() for file in two.iterdir()} == before
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
        save(CheckpointFolder(two), 3)
        assert is_whole(CheckpointFolder(two).load_latest(), 3)

    @pytest.mark.parametrize("number", [2, 3])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
    def test_running_out_of_space_changes_nothing(self, two: Path, number: int, code: int) -> None:
        before = {file: file.read_bytes() for file in two.iterdir()}
        for call in [call for call in calls_of_a_save(two) if call[0] == "write"] + [("fsync", 1), ("fsync", 2)]:

            def act(name: str, count: int, wanted: tuple[str, int] = call) -> None:
                if (name, count) == wanted:
                    raise OSError(code, os.strerror(code))

            with pytest.MonkeyPatch.context() as patch:
                Faults(patch, act)
                with pytest.raises(CheckpointError, match=r"needs [0-9,]+ bytes: the disk is full; .* unchanged"):
                    CheckpointFolder(two).save(number, {name: torch.ones(4) for name in "abc"}, {})
            assert {file: file.read_bytes() for file in two.iterdir()} == before

    def test_other_errors_name_the_remedy(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def act(name: str, count: int) -> None:
            raise PermissionError(errno.EACCES, "permission denied")

        Faults(monkeypatch, act)
        with pytest.raises(CheckpointError, match="permission denied; make the folder writable, or choose another"):
            save(CheckpointFolder(two), 3)


def corrupt(path: Path, chance: random.Random) -> str:
    """Damages a folder in one of the ways that disks, people and programs do."""
    files = sorted(file for file in path.iterdir() if file.is_file())
    file = chance.choice(files)
    content = bytearray(file.read_bytes())
    where = chance.randrange(max(1, len(content)))
    kind = chance.choice(["truncate", "flip", "delete", "swap", "zero", "append", "foreign", "folder", "rename"])
    if kind == "truncate":
        file.write_bytes(content[:where])
    elif kind == "flip" and content:
        content[where] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    elif kind == "zero":
        content[where : where + 16] = bytes(len(content[where : where + 16]))
        file.write_bytes(content)
    elif kind == "append":
        file.write_bytes(content + chance.randbytes(chance.randint(1, 40)))
    elif kind == "foreign":
        file.write_bytes(chance.choice([b"", b"{}", b"[]", b"\x80\x04.", b"null", chance.randbytes(100)]))
    elif kind == "swap":
        other = chance.choice(files)
        taken = other.read_bytes()
        other.write_bytes(content)
        file.write_bytes(taken)
    elif kind == "rename":
        target = file.with_name(f"checkpoint-{chance.randint(0, 4):09d}{file.suffix}")
        shutil.rmtree(target, ignore_errors=True)
        file.rename(target)
    else:
        file.unlink()
        if kind == "folder":
            file.mkdir()
    return f"{kind} {file.name}"


def outcome(path: Path) -> int | None:
    """The number of the checkpoint that loads, checked to be whole, or None for a refusal."""
    try:
        found = CheckpointFolder(path).load_latest()
    except CheckpointError:
        return None
    assert found is not None
    assert is_whole(found, found.number)
    return found.number


def check_corruption(two: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = two.with_name(f"seed{seed}")
    shutil.copytree(two, path)
    done = [corrupt(path, chance) for _ in range(chance.choice([1, 1, 2, 3]))]
    allowed: tuple[int | None, ...] = (2, 1, None)
    # damage to one file leaves the other checkpoint
    if len(done) == 1 and done[0].split()[0] not in ("swap", "rename"):
        allowed = (2, 1)
    assert outcome(path) in allowed, done
    # and the next save is valid in any case
    if not any(file.is_dir() for file in path.iterdir()):
        save(CheckpointFolder(path), 5)
        assert outcome(path) == 5, done


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
class TestCorruption:
    def test_fifty_random_corruptions_never_give_wrong_content(self, two: Path) -> None:
        for seed in range(50):
            check_corruption(two, seed)

    @pytest.mark.soak
    def test_two_hundred_random_corruptions_never_give_wrong_content(self, two: Path) -> None:
        for seed in range(1000, 1200):
            check_corruption(two, seed)

    @pytest.mark.parametrize("half", [0, 1])
    def test_a_flip_of_any_byte_is_found(self, tmp_path: Path, half: int) -> None:
        CheckpointFolder(tmp_path).save(7, {"x": torch.arange(3), "y": torch.ones(2)}, {"rate": 1e-05, "name": "a b"})
        file = files_of(tmp_path, 7)[half]
        content = file.read_bytes()
        for place in range(len(content)):
            flipped = bytearray(content)
            # turns letters into capitals and spaces into nothing: the changes JSON is likeliest to forgive
            flipped[place] ^= 0x20
            file.write_bytes(flipped)
            with pytest.raises(CheckpointError):
                CheckpointFolder(tmp_path).load_latest()

    @pytest.mark.parametrize("half", [0, 1])
    def test_a_cut_anywhere_is_found(self, tmp_path: Path, half: int) -> None:
        CheckpointFolder(tmp_path).save(7, {"x": torch.arange(3)}, {"epoch": 7})
        file = files_of(tmp_path, 7)[half]
        content = file.read_bytes()
        for end in range(len(content)):
            file.write_bytes(content[:end])
            with pytest.raises(CheckpointError):
                CheckpointFolder(tmp_path).load_latest()

    def test_two_corrupt_checkpoints_are_an_error_with_a_remedy(self, two: Path) -> None:
        files_of(two, 2)[0].write_bytes(b"short")
        files_of(two, 1)[1].unlink()
        message = (
            "`.*two` has no valid checkpoint: "
            "`checkpoint-000000002.safetensors` is corrupt: it has 5 bytes, its record lists [0-9]+; "
            "`checkpoint-000000001.json` is missing; "
            "restore the folder from a backup, or remove it and train from scratch"
        )
        with pytest.raises(CheckpointError, match=message):
            CheckpointFolder(two).load_latest()


def reseal(file: Path, **changes: Any) -> None:
    """Rewrites a record as a forger would, with a digest that fits."""
    content = json.loads(file.read_bytes())
    del content["sha256"]
    content["tensors"] |= changes.pop("tensors", {})
    file.write_bytes(seal(content | changes))


def forge(path: Path, number: int, header: object, data: bytes = b"", length: int | None = None) -> None:
    """Puts any header in a tensor file and makes the record fit it."""
    text = json.dumps(header).encode()
    raw = (len(text) if length is None else length).to_bytes(8, "little") + text + data
    tensor_file, record_file = files_of(path, number)
    tensor_file.write_bytes(raw)
    reseal(record_file, tensors={"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()})


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


class TestSkipping:
    def spoil(self, path: Path, how: str) -> None:
        tensor_file, record_file = files_of(path, 2)
        if how == "pipe":
            tensor_file.unlink()
            os.mkfifo(tensor_file)
        elif how == "folder":
            record_file.unlink()
            record_file.mkdir()
        elif how == "long":
            with record_file.open("ab") as file:
                file.truncate(MAX_RECORD + 1)
        elif how == "deep":
            record_file.write_bytes(b"[" * 10**6)
        elif how == "old number":
            shutil.copy(files_of(path, 1)[0], tensor_file)
            shutil.copy(files_of(path, 1)[1], record_file)
        elif how == "names":
            reseal(record_file, tensors={"names": ["weight", "rows"]})
        elif how == "edited":
            record_file.write_text(record_file.read_text().replace('"epoch": 2', '"epoch": 9'))
        elif how == "swapped":
            shutil.copy(files_of(path, 1)[0], tensor_file)
        elif how == "link":
            tensor_file.unlink()
            tensor_file.symlink_to(tensor_file.name)

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("pipe", "`checkpoint-000000002.safetensors` is not a regular file"),
            ("folder", "`checkpoint-000000002.json` is not a regular file"),
            ("long", "`checkpoint-000000002.json` is too long for the record of a checkpoint"),
            ("deep", "`checkpoint-000000002.json` is corrupt, or not the record of a checkpoint"),
            ("old number", "`checkpoint-000000002.json` was renamed: it belongs to checkpoint 1"),
            ("names", "`checkpoint-000000002.safetensors` has other tensors than its record lists"),
            ("edited", "`checkpoint-000000002.json` is corrupt: its digest does not match"),
            ("swapped", "`checkpoint-000000002.safetensors` is corrupt: its digest does not match"),
            ("link", "cannot read `checkpoint-000000002.safetensors`"),
        ],
    )
    def test_the_warning_names_file_and_reason(
        self, two: Path, caplog: pytest.LogCaptureFixture, how: str, reason: str
    ) -> None:
        self.spoil(two, how)
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith(f"skipping checkpoint 2 in `{two}`: {reason}")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"format": "other"}, "was not written by lazygnn"),
            ({"version": 2}, "has version 2, this lazygnn reads 1; upgrade lazygnn to use it"),
            ({"version": 0}, "has the unknown version 0; this lazygnn reads 1"),
            ({"version": "1"}, "has the unknown version '1'"),
            ({"number": "2"}, "is corrupt: its digest does not match"),
            ({"state": []}, "is corrupt: its digest does not match"),
            ({"tensors": {"size": None}}, "is corrupt: its digest does not match"),
            ({"tensors": {"names": [[]]}}, "is corrupt: its digest does not match"),
        ],
    )
    def test_an_incompatible_record_is_skipped(
        self, two: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
    ) -> None:
        reseal(files_of(two, 2)[1], **changes)
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        assert f"`checkpoint-000000002.json` {reason}" in caplog.text

    def test_a_newer_version_alone_asks_for_an_upgrade(self, tmp_path: Path) -> None:
        save(CheckpointFolder(tmp_path), 1)
        reseal(files_of(tmp_path, 1)[1], version=3)
        with pytest.raises(CheckpointError, match="has version 3, this lazygnn reads 1; upgrade lazygnn"):
            CheckpointFolder(tmp_path).load_latest()

    @pytest.mark.parametrize(
        ("header", "data", "length"),
        [
            ({}, b"", 2**63),
            ({}, b"", 99_000_000),
            ({}, b"", tensor_file.MAX_HEADER + 1),
            ({}, b"data that no tensor owns", None),
            ([], b"", None),
            ({"x": entry("F32", [2**40], 0, 2**42)}, b"", None),
            ({"x": entry("F32", [2**62, 8], 0, 0)}, b"", None),
            ({"x": entry("F32", [2**63, 0], 0, 0)}, b"", None),
            ({"x": entry("F32", [-1], 0, 4)}, bytes(4), None),
            ({"x": entry("F32", [1], 4, 0)}, bytes(4), None),
            ({"x": entry("F32", [2], 0, 4)}, bytes(4), None),
            ({"x": entry("F32", [1], 0, 4), "y": entry("F32", [1], 0, 4)}, bytes(4), None),
            ({"x": entry("F32", [1], 0, 4), "y": entry("F32", [1], 8, 12)}, bytes(12), None),
            ({"x": entry("O", [1], 0, 8)}, bytes(8), None),
            ({"x": entry("F4", [3], 0, 2)}, bytes(2), None),
            ({"x": {"dtype": "F32"}}, b"", None),
        ],
    )
    def test_a_forged_tensor_file_is_refused_before_memory_is_taken(
        self, two: Path, caplog: pytest.LogCaptureFixture, header: object, data: bytes, length: int | None
    ) -> None:
        forge(two, 2, header, data, length)
        reseal(files_of(two, 2)[1], tensors={"names": ["x"]})
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        assert "skipping checkpoint 2" in caplog.text

    def test_a_long_header_is_not_parsed(
        self, two: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forge(two, 2, {"x": entry("F32", [1], 0, 4), "__metadata__": {"long": "a" * 1000}}, bytes(4))
        reseal(files_of(two, 2)[1], tensors={"names": ["x"]})
        monkeypatch.setattr(tensor_file, "MAX_HEADER", 1000)
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        assert "`checkpoint-000000002.safetensors` has a header of 1,0" in caplog.text

    def test_a_forged_but_sound_file_is_only_data(self, two: Path) -> None:
        forge(two, 2, {"x": entry("F32", [1], 0, 4)}, bytes(4))
        reseal(files_of(two, 2)[1], tensors={"names": ["x"]})
        found = CheckpointFolder(two).load_latest()
        assert found is not None
        assert found.tensors["x"].tolist() == [0.0]

    def test_a_file_that_cannot_be_read_is_skipped(
        self, two: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = Path.open

        def open_(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.name == "checkpoint-000000002.safetensors":
                raise OSError(errno.EIO, "input/output error")
            return opened(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", open_)
        assert is_whole(CheckpointFolder(two).load_latest(), 1)
        assert "cannot read `checkpoint-000000002.safetensors`: [Errno 5] input/output error" in caplog.text
