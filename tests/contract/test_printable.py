from dlcpd.contract.printable import harmless, lines, one_line


def test_printable_ascii_is_left_alone_and_nothing_else() -> None:
    plain = "".join(map(chr, range(0x20, 0x7F)))
    assert one_line(plain) == lines(plain) == plain
    everything = "".join(map(chr, range(0x3000)))
    for shown in (one_line(everything), lines(everything)):
        assert shown.isascii() and shown.replace("\n", "").isprintable()
    assert "\n" not in one_line(everything)
    assert lines("a\nb") == "a\nb"


def test_an_escape_tells_what_it_stands_for() -> None:
    assert one_line("\x1b]0;\x07 \x7f \x9b é \u202e") == r"\x1b]0;\x07 \x7f \x9b \xe9 \u202e"


def test_a_harmless_text_keeps_all_letters_and_newlines_and_no_control_character() -> None:
    assert harmless("a\nß é 漢字 🙂") == "a\nß é 漢字 🙂"
    shown = harmless("".join(map(chr, range(0x11000))))
    controls = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n")}
    turns = {0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
    assert not {*map(ord, shown)} & (controls | turns)
    assert shown.encode(), "and no half of a surrogate pair"
    assert harmless(shown) == shown
