import torch

from lazygnn.commands.result import peak_memory_mib


def test_peak_memory_on_a_cpu_is_that_of_the_process() -> None:
    before = peak_memory_mib(torch.device("cpu"))
    held = torch.ones(2**26)
    grown = peak_memory_mib(torch.device("cpu"))
    # torch alone takes more than 50 MiB; no test takes 64 GiB
    assert 50 < before <= grown < 65_536
    assert grown >= held.nbytes / 2**20
