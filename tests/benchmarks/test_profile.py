"""The profile of an epoch."""

from pathlib import Path

import pytest
import torch

from benchmarks.profile import GROUPS, OTHER, Profile, group_of, profile_table
from tests.benchmarks.helpers import CPU, invoke, read_result


@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        ("lane_rows", "sparse products"),
        ("void cusparse::csrmm_alg2_kernel<float>", "sparse products"),
        ("gather_rows", "rows of histories and features"),
        ("normalize_rows_back", "norms, activations and dropout"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", "dense products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "dense products"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("Memcpy HtoD (Pinned -> Device)", "copies and fills"),
        ("void at::native::reduce_kernel<512>", OTHER),
    ],
)
def test_a_kernel_belongs_to_a_group(kernel: str, group: str) -> None:
    assert group_of(kernel) == group


def test_groups_have_the_time_of_what_runs_between_start_and_stop() -> None:
    a = torch.randn(400, 400)
    _ = torch.nn.functional.gelu(a)
    profile = Profile(CPU)
    profile.start()
    _ = a @ a
    profile.stop()
    assert profile.milliseconds["dense products"] > 0
    assert "norms, activations and dropout" not in profile.milliseconds
    assert set(profile.milliseconds) <= {*GROUPS, OTHER}


def test_the_longest_group_comes_first() -> None:
    lines = profile_table({"optimizer": 1.0, "dense products": 3.0}).splitlines()
    assert lines[2:] == ["| dense products | 3.0 | 75 % |", "| optimizer | 1.0 | 25 % |"]


def test_a_profiled_epoch_is_not_a_measured_one(tmp_path: Path) -> None:
    words = ("--shape", "tiny", "--device", "cpu", "--only", "ours,deep", "--repeats", "2", "--warmup", "1")
    done = invoke("epoch", *words, "--profile", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    result, _ = read_result(tmp_path / "out")
    for row in result["rows"]:
        assert len(row["all_seconds"]) == 2
        assert row["config"]["trainer"]["epochs"] == 5
        assert row["profile"]["dense products"] > 0
        assert row["profile"]["optimizer"] > 0
    assert "| dense products |" in done.output
