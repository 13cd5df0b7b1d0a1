"""Errors of TOML files are one short line in the words of TOML."""

import tomllib
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import LONGEST, LONGEST_ERROR, hint, loaded, named, printable, shown
from tests.damaged import PYTHON

KEY = "k" * 1000
WRONG = {
    "[a]\n[a]": "table [a] is there twice (at line 2, column 3)",
    "a.b = 1\n[a]": "table [a] is there twice (at line 2, column 3)",
    "a = {}\n[a.b.c]": "table [a.b.c] is there twice (at line 2, column 7)",
    '[a."\\n"]\n[a."\\n"]': "table [a.\\n] is there twice (at line 2, column 8)",
    "a = []\n[[a]]": "a has its value, and cannot get another key (at line 2, column 4)",
    "x={a={}, a.b=1}": "a.b has its value, and cannot get another key (at line 1, column 15)",
    "a = 1\na = 2\n": "the key has a value already (at line 2, column 6)",
    "a = 1\n[a]\n": "the key has a value already (at line 2, column 3)",
    "a = 1\nb = " + "9" * 5000: "a number has too many digits (at line 2)",
    "a = " + "[" * 5000: "lists or tables are nested too deeply",
    "a = \x00": "Invalid value (at line 1, column 5)",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_is_in_the_words_of_toml(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        loaded(text)
    assert str(caught.value) == WRONG[text]


@pytest.mark.parametrize("text", [f"[{KEY}]\n[{KEY}]", f"x = {{ {KEY} = 1, {KEY} = 2 }}"])
def test_a_long_key_leaves_room_for_the_place(text: str) -> None:
    with pytest.raises(BadConfig) as caught:
        loaded(text)
    said = str(caught.value)
    assert len(said) == LONGEST_ERROR
    assert "k..." in said and said.endswith(")") and "at line" in said


@given(st.text(alphabet=st.sampled_from("[]{}a.b=1\"'\n,# \\ué"), max_size=30))
@example("[a]\n[a]")
def test_every_text_is_read_as_tomllib_does_or_refused_in_a_line(text: str) -> None:
    try:
        found = loaded(text)
    except BadConfig as exc:
        said = str(exc)
        assert printable(said) and len(said) <= LONGEST_ERROR
        assert not [word for word in PYTHON if word in said], said
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(text)
    else:
        assert found == tomllib.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
@example(1 << 100_000)
@example([[1 << 100_000]])
@example({"a\nb": "\u2028"})
def test_a_value_is_shown_in_one_short_line(value: object) -> None:
    said = shown(value)
    assert printable(said) and len(said) <= LONGEST


def test_values_are_shown_as_toml_has_them() -> None:
    value = {"a": [True, False, 1, 2.5, "b'"], "on": date(2020, 1, 1), "none": {}}
    assert shown(value) == '{ a = [true, false, 1, 2.5, "b\'"], on = 2020-01-01, none = {} }'
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "lists or tables that are nested too deeply"


@given(st.text(), st.lists(st.text(), max_size=50))
def test_names_and_hints_are_one_short_line(key: str, known: list[str]) -> None:
    assert printable(named(key)) and len(named(key)) <= LONGEST
    said = hint(key, known)
    assert printable(said) and len(said) <= LONGEST_ERROR + len("known: ")


def test_a_hint_is_the_nearest_name_or_all() -> None:
    assert hint("hots", ["host", "port"]) == "did you mean host?"
    assert hint("zzz", ["host", "port"]) == "known: host, port"
