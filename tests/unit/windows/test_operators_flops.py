"""The operations of a call against counts by hand."""

from __future__ import annotations

import pytest

from profd.daemon.windows.operators import estimate

CONV = ("", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "4")


def test_convolution_counts_each_place_of_the_kernel_twice() -> None:
    # 3x3 over 8x8 by twos, padded by one: 4x4 places; 16 channels from 8, in 4 groups of 2 each.
    assert estimate("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], CONV) == 2 * 5 * 4 * 4 * 9 * 16 * 2


@pytest.mark.parametrize(
    ("name", "dims", "operations"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 2 * 2 * 3 * 5),
        ("aten::addmm", [[5], [2, 3], [3, 5], []], 2 * 2 * 3 * 5),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 2 * 7 * 2 * 3 * 5),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], 2 * 7 * 2 * 3 * 5),
        ("aten::mul", [[2, 3], []], 6),
        ("aten::add", [[], []], 1),
    ],
)
def test_products(name: str, dims: list[object], operations: int) -> None:
    assert estimate(name, dims, ()) == operations


@pytest.mark.parametrize(
    ("name", "dims", "concrete"),
    [
        ("aten::relu", [[2, 3]], ()),
        ("aten::mm", [], ()),
        ("aten::mm", [[], []], ()),
        ("aten::mm", [[0, 0], [0, 5]], ()),
        ("aten::mm", ["2x3", None], ()),
        ("aten::conv2d", [[5, 8, 8], [16, 2, 3, 3]], CONV),
        ("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], ("", "", "", "same")),
        ("aten::conv2d", [[5, 8, 8, 8], [16, 2, 3, 3]], (*CONV[:3], "[0, 0]", *CONV[4:])),
    ],
)
def test_what_fits_no_formula_has_no_estimate(name: str, dims: list[object], concrete: tuple[str, ...]) -> None:
    assert estimate(name, dims, concrete) == 0
