"""All forms of the collectives that PyTorch documents, and all that it asks of a group."""

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

from dlcp_client.c10d.overloads import FORMS, CallOptions
from dlcp_client.c10d.process_group import ProcessGroup
from dlcpd.contract.errors import BadOperation, BadTensor
from tests.c10d import forms, table
from tests.c10d.stub import DOCUMENTED, Overload
from tests.c10d.test_unmodified import BACKEND, assert_equal
from tests.c10d.worlds import over

TENSOR: Final = torch.ones(2)
TIME: Final = timedelta(seconds=1)
GIVEN: Final = {"op": dist.ReduceOp.SUM, "root": 1, "timeout": TIME}


@pytest.mark.parametrize("overload", DOCUMENTED, ids=str)
def test_each_form_of_the_stub_is_taken_by_position_and_by_name(overload: Overload) -> None:
    name, arguments, depths = overload
    form = overload.form
    opts = getattr(dist.distributed_c10d, form.options)() if form.options else None
    values: dict[str, Any] = {}
    for at, argument in enumerate(arguments):
        if at < len(form.first):
            values[argument] = nested(depths[at]) if at < len(form.depths) else [2]
        else:
            values[argument] = opts if argument == "opts" else GIVEN[argument]
    by_position = form.bind(name, list(values.values()), {})
    by_name = form.bind(name, [], values)
    assert str(by_position) == str(by_name)
    assert by_name[1].timeout == (TIME if "timeout" in arguments else None)
    assert by_name[1].root == ("root" in arguments)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else TENSOR


def test_the_stub_has_collectives() -> None:
    assert len(DOCUMENTED) > 30
    assert {getattr(ProcessGroup, each.name).__name__ for each in DOCUMENTED} == set(FORMS)


@pytest.mark.parametrize(
    ("name", "positional", "named", "said"),
    [
        ("allreduce", [], {}, "allreduce: too few arguments; it takes tensors, then op, timeout"),
        ("allreduce", [TENSOR, 1, 2, 3], {}, "allreduce: 4 arguments; it takes"),
        ("allreduce", [TENSOR], {"root": 1}, "no argument 'root'"),
        ("allreduce", [3], {}, "it takes tensors: a list of tensors"),
        ("allreduce", [[3]], {}, "it takes tensors: a list of tensors"),
        ("allreduce", [TENSOR, dist.BroadcastOptions()], {}, "are a BroadcastOptions"),
        ("allreduce", [TENSOR], {"opts": dist.BarrierOptions()}, "give AllreduceOptions"),
        ("allreduce", [TENSOR], {"timeout": 3.0}, "timeout 3.0 is not valid: give a timedelta"),
        ("broadcast", [TENSOR, "one"], {}, "root 'one' is not in the group: give a rank"),
        ("scatter", [TENSOR, TENSOR], {}, "input_tensors: a list of lists of tensors"),
        ("reduce_scatter_single", [[TENSOR], TENSOR], {}, "output: a tensor, input: a tensor"),
        (
            "allreduce",
            [TENSOR, dist.ReduceOp.MAX],
            {"op": dist.ReduceOp.SUM},
            "'op' is given twice",
        ),
        ("allreduce", [TENSOR], {"tensor": TENSOR}, "'tensors' is given twice"),
        (
            "allreduce",
            [TENSOR, dist.AllreduceOptions()],
            {"timeout": TIME},
            "an options object too",
        ),
        ("reduce", [TENSOR, 1], {"opts": dist.ReduceOptions()}, "'root' is given, and"),
        ("barrier", [3], {}, "timeout 3 is not valid: give a timedelta"),
        ("send", [TENSOR, 1], {}, "too few arguments; it takes tensors, dstRank, tag"),
    ],
)
def test_what_is_no_form_is_refused(
    name: str, positional: list[Any], named: dict[str, Any], said: str
) -> None:
    with pytest.raises((BadOperation, BadTensor), match=said):
        FORMS[name].bind(name, positional, named)


def test_options_that_say_nothing_mean_the_groups_timeout() -> None:
    for given in ([TENSOR], [TENSOR, dist.AllreduceOptions()], [[TENSOR], None]):
        assert FORMS["allreduce"].bind("allreduce", given, {})[1] == CallOptions()


@pytest.mark.parametrize("size", [2, 3])
def test_results_of_all_forms_equal_gloos(size: int, tmp_path: Path) -> None:
    theirs = over("gloo", forms.forms, size, tmp_path)
    ours = over(BACKEND, forms.forms, size, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        assert_equal(size, found, expected)


def test_loading_from_rank_0_and_saving_beside_the_training(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("gloo", BACKEND)]
    theirs = over("gloo", forms.loaded, 2, tmp_path, str(folders[0]))
    ours = over(BACKEND, forms.loaded, 2, tmp_path, str(folders[1]))
    for found, expected in zip(ours, theirs, strict=True):
        assert_equal(2, found, expected)


def test_every_documented_form_works(tmp_path: Path) -> None:
    found = list(table.rows(tmp_path))
    assert len(found) > 30
    assert [(form, said) for form, said, _ in found if said != table.WORKS] == []


def test_answers_equal_gloos(tmp_path: Path) -> None:
    theirs = over("gloo", forms.asked, 2, tmp_path)
    ours = over(BACKEND, forms.asked, 2, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        assert found == expected | {"splits": False}
