"""Names of codecs: one spelling for each, and an error that says what to write."""

import pytest

from dlcpd.contract.codec import CodecName, check_takes, parsed
from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.messages import DTYPES, REDUCE_OPS
from dlcpd.contract.policy import bounded, exact

NAMES = ("bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2", "topk:0.01")


@pytest.mark.parametrize("name", NAMES)
def test_names_mean_what_they_say(name: str) -> None:
    assert str(parsed(name)) == name
    assert bounded(0.02, codec=name).codec == exact(codec=name).codec == name


def test_spellings_of_one_fraction_are_one_codec() -> None:
    assert exact(codec="topk:1e-2") == exact(codec="topk:0.010") == exact(codec="topk:0.01")
    assert parsed("topk:0.25") == CodecName("topk", 0.25)


@pytest.mark.parametrize(
    "name",
    ["BF16", "bf16:1", "topk", "topk:", "topk:0", "topk:-1", "topk:0.3", "topk:nan", "topk:x",
     "int4", "topk:0." + "0" * 40 + "1", 8, None],
)  # fmt: skip
def test_others_are_refused(name: object) -> None:
    with pytest.raises(BadPolicy, match=r"codec .*: use one of \"bf16\", .*, at most 0.25"):
        parsed(name)


def test_the_default_is_none() -> None:
    assert exact().is_plain
    assert exact().codec == ""
    assert not bounded().is_plain
    assert not exact(codec="int8").is_plain


@pytest.mark.parametrize("name", NAMES)
def test_what_takes_them(name: str) -> None:
    taken = {"float32", "float64"}
    if name not in ("bf16", "fp16"):
        taken |= {"float16", "bfloat16"}
    for dtype in taken:
        check_takes(parsed(name), dtype, "avg")
    for dtype in set(DTYPES) - taken:
        with pytest.raises(BadPolicy, match=f"codec {name}: {dtype} "):
            check_takes(parsed(name), dtype, "avg")
    for op in REDUCE_OPS:
        if op not in ("sum", "avg"):
            with pytest.raises(BadPolicy, match=f"{op} of rounded values"):
                check_takes(parsed(name), "float32", op)
