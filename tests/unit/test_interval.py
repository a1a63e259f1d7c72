"""Intervals through functions: ends stay ends, and the middle is the function of the middle."""

import pytest

from ptanalyze.core.interval import Interval, over_corners


def test_an_interval_is_its_low_its_middle_and_its_high_in_this_order():
    assert tuple(Interval(1.0, 3.0, 4.0)) == (1.0, 3.0, 4.0)
    assert tuple(Interval.exactly(2.5)) == (2.5, 2.5, 2.5)


def test_ends_change_sides_where_the_function_falls():
    assert Interval(1.0, 2.0, 4.0).through(lambda value: 10 * value) == Interval(10.0, 20.0, 40.0)
    assert Interval(1.0, 2.0, 4.0).through(lambda value: 1 / value) == Interval(0.25, 0.5, 1.0)


def test_extremes_over_corners_are_those_of_the_ends_and_the_middle_that_of_the_middles():
    found = over_corners(lambda a, b: a - b, Interval(1.0, 2.0, 5.0), Interval(1.0, 1.5, 3.0))
    assert found == Interval(-2.0, 0.5, 4.0)


def test_a_value_that_is_known_exactly_has_one_corner():
    calls = []
    over_corners(lambda a, b: calls.append((a, b)) or 0.0, Interval.exactly(1.0), Interval(1.0, 2.0, 3.0))
    assert sorted(calls) == [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]


def test_an_interval_cannot_be_changed():
    with pytest.raises(AttributeError):
        Interval(1.0, 2.0, 3.0).low = 0.0
