"""The traffic-class table: the shipped one fits its promises; a wrong one is refused by name."""

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.traffic import (
    DROP_PRECEDENCES,
    MAX_CLASSES,
    Ecn,
    TrafficClass,
    parse_traffic_classes,
    traffic_classes,
)

CONTROL = '[control]\nrank = 0\ndscp = [48]\necn = ["ect0"]\n'
BULK = '[bulk]\nrank = 1\ndscp = [10, 12]\necn = ["ect0", "not-ect"]\n'


def row(index: int) -> str:
    return f'[c{index}]\nrank = {index}\ndscp = [{index}]\necn = ["ect0"]\n'


def test_a_table_is_read_and_ordered_by_rank() -> None:
    table = parse_traffic_classes(BULK + CONTROL)
    assert list(table.values()) == [
        TrafficClass("control", 0, (48,), (Ecn.ECT0,)),
        TrafficClass("bulk", 1, (10, 12), (Ecn.ECT0, Ecn.NOT_ECT)),
    ]
    assert list(table) == ["control", "bulk"]


def test_the_shipped_table_has_the_classes_that_the_code_names() -> None:
    table = traffic_classes()
    assert next(iter(table)) == "control"
    assert {"control", "front", "middle", "back", "bulk"} <= table.keys()
    assert table is traffic_classes()


def test_the_shipped_control_class_is_above_all_gradients() -> None:
    control, *gradients = traffic_classes().values()
    assert all(control.dscp > gradient.dscp for gradient in gradients)


def test_the_largest_table_fits() -> None:
    assert len(parse_traffic_classes("".join(map(row, range(MAX_CLASSES))))) == MAX_CLASSES


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[control", "traffic classes: "),
        ("rank = " + "9" * 5000, "traffic classes: "),
        ("rank = " + "[" * 5000, "traffic classes: "),
        ("", "0 classes"),
        ("".join(map(row, range(MAX_CLASSES + 1))), "9 classes"),
        ("control = 1", r"\[control\]: needs exactly"),
        (CONTROL.replace('ecn = ["ect0"]\n', ""), r"\[control\]: needs exactly"),
        (CONTROL + "queue = 1\n", r"\[control\]: needs exactly"),
        (CONTROL.replace("rank = 0", "rank = 0.0"), r"\[control\]: rank is"),
        (CONTROL.replace("rank = 0", "rank = false"), r"\[control\]: rank is"),
        (CONTROL.replace("[48]", "48"), r"\[control\]: dscp is a list"),
        (CONTROL.replace("[48]", "[]"), r"\[control\]: dscp is a list"),
        (CONTROL.replace("[48]", "[1, 2, 3, 4]"), r"\[control\]: dscp is a list"),
        (CONTROL.replace("48", '"CS6"'), r"\[control\]: a dscp is"),
        (CONTROL.replace("48", "true"), r"\[control\]: a dscp is"),
        (CONTROL.replace("48", "64"), r"integer 0\.\.63"),
        (CONTROL.replace("48", "-1"), r"integer 0\.\.63"),
        (CONTROL.replace("ect0", "ect1"), r"\[control\]: ecn is a list"),
        (CONTROL.replace('["ect0"]', '"ect0"'), r"\[control\]: ecn is a list"),
        (CONTROL.replace('"ect0"', "[]"), r"\[control\]: ecn is a list"),
        (CONTROL.replace('["ect0"]', '["ect0", "ect0"]'), "one entry per drop precedence"),
        (CONTROL.replace("rank = 0", "rank = 1"), "ranks must be"),
        (CONTROL + BULK.replace("rank = 1", "rank = 0"), "ranks must be"),
        (CONTROL + BULK.replace("rank = 1", "rank = 2"), "ranks must be"),
        (CONTROL + BULK.replace("10", "48"), "used twice"),
        (CONTROL + BULK.replace("10", "12"), "used twice"),
    ],
)
def test_a_wrong_table_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadConfig, match=told):
        parse_traffic_classes(text)


@pytest.mark.parametrize("dscp", [0, 63])
def test_the_limits_of_a_dscp_are_allowed(dscp: int) -> None:
    table = parse_traffic_classes(CONTROL.replace("48", str(dscp)))
    assert table["control"].dscp == (dscp,)


def test_a_tag_says_class_and_drop_precedence() -> None:
    bulk = parse_traffic_classes(CONTROL + BULK)["bulk"]
    assert [bulk.tag(), bulk.tag(1)] == [DROP_PRECEDENCES, DROP_PRECEDENCES + 1]
