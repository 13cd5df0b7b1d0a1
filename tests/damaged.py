"""TOML files after mistakes of an editor, for property tests of their readers."""

from collections.abc import Sequence

from hypothesis import strategies as st

from dlcpd.contract.toml_text import printable

VALUES = (
    "0", "-1", "1e400", "nan", "true", "[]", "{}", '""', "[[]]", '["a"]', "[true]", "[[[{}]]]",
    "2020-01-01", "2020-01-01T00:00:00Z", "07:32:00", "0x" + "f" * 5000, "9" * 5000, "0x1ffffffff",
    '"\\u0000"', '"\\n"', '"a\\u2028"', '"/a\\u0000"', '["a\\u0000"]', '"' + "x" * 5000 + '"',
    "[" * 5000, "{ a = { b = {} } }",
)  # fmt: skip
# Python speaks of its own classes and functions so.
PYTHON = (
    "sys.", "Exceeds", "recursion", "NoneType", "datetime.", "dict", "tuple", "('", "',)", "True",
    "False", "null byte", "is int", "is str", "is bool", "is float", "need ", "codec", "__",
)  # fmt: skip


def _with_a_value(line: str, value: str) -> str:
    key, equals, _ = line.partition("=")
    return f"{key}= {value}" if equals else line


@st.composite
def damaged(draw: st.DrawFn, valid: Sequence[str], values: Sequence[str] = ()) -> str:
    """A `valid` file after up to three mistakes; `values`: further ones that its keys may get."""
    lines = draw(st.sampled_from(valid)).strip().splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["value", "drop", "twice", "swap", "cut", "letters"])):
            case "value":
                lines[at] = _with_a_value(lines[at], draw(st.sampled_from((*VALUES, *values))))
            case "drop" if len(lines) > 1:
                del lines[at]
            case "twice":
                lines.insert(at, lines[draw(st.integers(0, len(lines) - 1))])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case _:
                place = draw(st.integers(0, len(lines[at])))
                letters = draw(st.text(max_size=3))
                lines[at] = lines[at][:place] + letters + lines[at][place:]
    return "\n".join(lines)


def check_error(said: str, source: str, longest: int) -> None:
    """Check that an error names the file, in one line, and in words of TOML."""
    assert said.startswith(f"{source}: "), said
    assert printable(said) and len(said) < longest, said
    assert not [word for word in PYTHON if word in said], said
