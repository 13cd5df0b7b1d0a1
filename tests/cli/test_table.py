from dlcpd.cli.table import render


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert render(("name", "n"), [("a", 1), ("longer", 1000)]) == (
        "name       n\na          1\nlonger  1000"
    )


def test_numbers_stand_right_and_the_first_columns_left() -> None:
    lines = render(("a", "b", "c"), [("x", "y", 10), ("xx", "yy", 5)], left=2).splitlines()
    assert lines == ["a   b    c", "x   y   10", "xx  yy   5"]


def test_none_is_a_dash_and_a_float_has_two_digits() -> None:
    assert render(("v",), [(None,), (1.005e3,), (0.0,)], left=0).split() == [
        "v",
        "-",
        "1005.00",
        "0.00",
    ]


def test_a_cell_cannot_begin_a_line_and_is_as_wide_as_it_looks() -> None:
    lines = render(("a", "n"), [("x\n\x1b[1m", 1)]).splitlines()
    assert lines == ["a           n", r"x\n\x1b[1m  1"]


def test_no_line_ends_in_blanks() -> None:
    text = render(("a", "note"), [("x", ""), ("y", "long note")], left=2)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_table_without_rows_is_its_header() -> None:
    assert render(("a", "b"), []) == "a  b"
