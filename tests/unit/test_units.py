from __future__ import annotations

from profd.daemon.units import duration, percent, size


def test_shares_never_round_to_all_or_nothing() -> None:
    assert (percent(1.0), percent(0.999), percent(0.9999, 1)) == ("100 %", "99 %", "99.9 %")
    assert (percent(0.0), percent(0.001), percent(0.0001, 1)) == ("0 %", "<1 %", "<0.1 %")
    assert (percent(2.125), percent(None)) == ("212 %", "-")


def test_lengths_of_time_and_sizes_have_two_figures_that_matter() -> None:
    assert [duration(s) for s in (0, 12.34, 59.94, 59.96, 124.2, 3599.6, 11_220, 190_800)] == [
        "0.0 s",
        "12.3 s",
        "59.9 s",
        "1 min 00 s",
        "2 min 04 s",
        "1 h 00 min",
        "3 h 07 min",
        "2 d 05 h",
    ]
    assert [size(n) for n in (999, 1000, 812_345, 999_600, 1.3e9, 2e12, None)] == [
        "999 B",
        "1.0 kB",
        "812 kB",
        "1.0 MB",
        "1.3 GB",
        "2.0 TB",
        "-",
    ]
