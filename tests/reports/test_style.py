import re

import pytest

from lazygnn.reports.style import STYLE

LIGHT, DARK = (
    dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", block)) for block in STYLE.split("@media (prefers-color-scheme: dark)")
)
TINTS = [tuple(map(int, one)) for one in re.findall(r"--tint: (\d+), (\d+), (\d+)", STYLE)]


def channels(color: str) -> tuple[float, ...]:
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Returns the contrast of two colors, as WCAG 2 defines it."""

    def luminance(color: tuple[float, ...]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("theme", "tint"), [(LIGHT, TINTS[0]), (DARK, TINTS[1])], ids=["light", "dark"])
def test_text_and_lines_stand_out(theme: dict[str, str], tint: tuple[int, ...]) -> None:
    back, card = channels(theme["--back"]), channels(theme["--card"])
    for name in ("--text", "--soft", "--accent"):
        assert contrast(channels(theme[name]), back) >= 4.5
        assert contrast(channels(theme[name]), card) >= 4.5
    for index in range(6):
        assert contrast(channels(theme[f"--c{index}"]), back) >= 3
    # numbers in the darkest cell of a confusion matrix
    mixed = tuple(0.42 * over + 0.58 * under for over, under in zip(tint, back, strict=True))
    assert contrast(channels(theme["--text"]), mixed) >= 4.5


def test_the_style_loads_nothing() -> None:
    assert "url(" not in STYLE
    assert "@import" not in STYLE
