"""The codebook of values and gradients against loops and k-means, in float64."""

import pytest
import torch
from torch import Tensor

from lazygnn.propagation import codebook
from lazygnn.propagation.codebook import Codebook
from tests.helpers import random_rows

R, C, M = 40, 10, 6


def make(channels: int = C, num_words: int = M, decay: float = 0.9) -> Codebook:
    return Codebook(channels, num_words, word_channels=4, decay=decay).double()


def rows(seed: int) -> tuple[Tensor, Tensor]:
    """Returns values and gradients of another size and mean."""
    return random_rows(R, C, seed) + 3, 1e-5 * random_rows(R, C, seed + 1)


def nearest(book: Codebook, words: Tensor, values: Tensor, gradients: Tensor) -> list[list[int]]:
    """Returns the nearest word of each row and branch, counted from 1, by a loop."""
    scaled = book.standardize(values, gradients)
    distances = [torch.cdist(scaled[branch], words[branch]) for branch in range(book.num_branches)]
    return (torch.stack([distance.argmin(dim=1) for distance in distances], dim=1) + 1).tolist()


@pytest.mark.parametrize("entries", [1, 100, 1 << 24])
def test_codes_are_those_of_the_nearest_words(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    # few entries at a time divide the rows into pieces
    monkeypatch.setattr(codebook, "_ENTRIES_AT_ONCE", entries)
    book = make()
    book.update(*rows(1))
    words = book.words.clone()
    values, gradients = rows(3)
    codes = book.update(values, gradients)
    assert codes.shape == (R, 3)
    assert codes.tolist() == nearest(book, words, values, gradients)


def test_an_update_without_memory_is_a_step_of_k_means() -> None:
    book = make(decay=0.0)
    book.update(*rows(1))
    before = book.words.clone()
    values, gradients = rows(3)
    codes = book.update(values, gradients)
    scaled = book.standardize(values, gradients)
    for branch in range(book.num_branches):
        for word in range(M):
            chosen = scaled[branch][codes[:, branch] == word + 1]
            # a word that nobody chose stays
            expected = chosen.mean(dim=0) if len(chosen) > 0 else before[branch, word]
            torch.testing.assert_close(book.words[branch, word], expected, rtol=0, atol=1e-10)


def test_a_word_is_a_moving_mean_of_the_rows_that_chose_it() -> None:
    book = make(decay=0.9)
    first_codes = book.update(*rows(1))
    first = book.standardize(*rows(1))
    values, gradients = rows(3)
    codes = book.update(values, gradients)
    second = book.standardize(values, gradients)
    for branch in range(book.num_branches):
        for word in range(M):
            old, new = (found[:, branch] == word + 1 for found in (first_codes, codes))
            count = 0.9 * int(old.sum()) + 0.1 * int(new.sum())
            total = 0.9 * first[branch][old].sum(dim=0) + 0.1 * second[branch][new].sum(dim=0)
            if count > 0:
                torch.testing.assert_close(book.words[branch, word], total / count, rtol=0, atol=1e-9)


def test_a_word_that_nobody_chooses_survives() -> None:
    book = make(decay=0.5)
    book.update(*rows(1))
    # nobody is near
    book.words[:, 2] = 1e3
    book.sums[:, 2] = 1e3 * book.counts[:, 2].unsqueeze(1)
    for seed in range(200):
        codes = book.update(*rows(seed))
        assert not bool((codes == 3).any())
    assert bool(torch.isfinite(book.words).all())
    torch.testing.assert_close(book.words[:, 2], torch.full_like(book.words[:, 2], 1e3))


def test_as_many_words_as_rows_give_every_row_back() -> None:
    book = make(num_words=R)
    values, gradients = rows(1)
    codes = book.update(values, gradients)
    found_values, found_gradients = book.decode(codes)
    torch.testing.assert_close(found_values, values, rtol=0, atol=1e-10)
    torch.testing.assert_close(found_gradients, gradients, rtol=0, atol=1e-14)


def test_an_unknown_row_is_the_mean_of_all() -> None:
    book = make()
    values, gradients = rows(1)
    book.update(values, gradients)
    found_values, found_gradients = book.decode(torch.zeros(2, book.num_branches, dtype=torch.long))
    torch.testing.assert_close(found_values, values.mean(dim=0).expand(2, C))
    torch.testing.assert_close(found_gradients, gradients.mean(dim=0).expand(2, C))


def test_statistics_are_those_of_the_first_rows_and_then_follow() -> None:
    book = make()
    first, second = rows(1)[0], rows(3)[0]
    book.update(first, first)
    torch.testing.assert_close(book.mean[0], first.mean(dim=0))
    torch.testing.assert_close(book.variance[0], first.var(dim=0, correction=0))
    book.update(second, second)
    torch.testing.assert_close(book.mean[0], (first.mean(dim=0) + second.mean(dim=0)) / 2)
    book.num_updates += 100
    before = book.mean[0].clone()
    book.update(first, first)
    torch.testing.assert_close(book.mean[0], 0.9 * before + 0.1 * first.mean(dim=0))


@pytest.mark.parametrize(("channels", "branches"), [(1, 1), (4, 1), (5, 2), (10, 3), (16, 4)])
def test_channels_are_divided_into_branches(channels: int, branches: int) -> None:
    book = make(channels)
    values, gradients = random_rows(R, channels, 1), random_rows(R, channels, 2)
    codes = book.update(values, gradients)
    assert codes.shape == (R, branches)
    assert [part.shape for part in book.decode(codes)] == [(R, channels)] * 2


def test_constant_columns_are_encoded() -> None:
    book = make()
    zero = torch.zeros(R, C, dtype=torch.float64)
    values, gradients = book.decode(book.update(zero + 2, zero))
    assert torch.equal(values, zero + 2)
    assert torch.equal(gradients, zero)


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="`num_words` must be at least 1, got 0"):
        Codebook(4, 0)
    with pytest.raises(ValueError, match=r"`decay` must be in \[0, 1\), got 1.0"):
        Codebook(4, 2, decay=1.0)
