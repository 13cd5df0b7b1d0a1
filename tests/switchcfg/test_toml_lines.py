from switchcfg.intent.toml_lines import line_at, lines_of

TEXT = '''\
schema = 1
[fabric]  # a ] in a comment
name = "pod]1"
"odd key" . x = 3

[classes]
front = { rank = 1, dscp = [
    34,
    36 ] }
text = """
[not.a.header]
key = 1
"""
after = 1

[[device]]
name = "a"
[[device.ports]]
names = []
[[device.ports]]
names = []
[[device]]
name = "b"
[device.keep]
queues = [3]
'''


def test_quotes_within_a_string_of_several_lines_do_not_end_it() -> None:
    for inside in (r'"""\"""', '"""""', "'''''"):
        end = inside[-3:]
        text = f"a = {inside}\n[not a header\n{end}\nb = {end}{end[:2]}{end}\nc = 1\n"
        assert lines_of(text) == {("a",): 1, ("b",): 4, ("c",): 5}, text


def test_headers_keys_and_arrays_of_tables_have_their_lines() -> None:
    lines = lines_of(TEXT)
    at = {number: line for number, line in enumerate(TEXT.splitlines(), start=1)}

    def line(*path: str | int) -> str:
        return at[line_at(lines, path)]

    assert line("schema") == "schema = 1"
    assert line("fabric", "name") == 'name = "pod]1"'
    assert line("fabric", "odd key", "x").startswith('"odd key"')
    assert line("classes", "after") == "after = 1"
    assert line("device", 0, "name") == 'name = "a"'
    assert line("device", 1, "name") == 'name = "b"'
    assert line_at(lines, ("device", 0, "ports", 0, "names")) == 19
    assert line_at(lines, ("device", 0, "ports", 1, "names")) == 21
    assert line("device", 1, "keep", "queues") == "queues = [3]"


def test_what_stands_inside_a_value_is_no_key() -> None:
    assert ("not", "a", "header") not in lines_of(TEXT)
    assert ("classes", "key") not in lines_of(TEXT)


def test_a_field_of_an_inline_table_is_found_on_the_line_of_that_table() -> None:
    assert line_at(lines_of(TEXT), ("classes", "front", "rank")) == 7


def test_what_is_not_there_is_found_on_the_table_around_it() -> None:
    lines = lines_of(TEXT)
    assert line_at(lines, ("fabric", "missing")) == 2
    assert line_at(lines, ("nothing",)) == 1
