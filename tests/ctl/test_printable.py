from dlcpd.ctl.printable import lines, one_line


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
