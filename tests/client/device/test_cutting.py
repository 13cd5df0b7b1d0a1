"""How one operation becomes several: where it is cut, and what each part says of itself."""

from typing import Any

import torch

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations.operation import PIECE, Operation
from dlcp_client.operations.requests import MAX_NAME, request
from dlcpd.contract.policy import bounded, exact


def asked(elements: int, collective: str = "all_reduce", **terms: Any) -> Operation[torch.Tensor]:
    block = TENSORS.block(torch.zeros(elements))
    return Operation(request(collective, block, "sum", exact(), **terms), block, block)


def test_pieces_cover_all_and_none_is_small() -> None:
    for elements in (1, PIECE // 4, PIECE // 2 - 1, PIECE // 2, PIECE + 5, 5 * PIECE):
        whole = asked(elements)
        cut = whole.cut(TENSORS)
        assert sum(part.input.count for part in cut) == elements
        assert len(cut) == max(1, elements * 4 // PIECE)
        at = whole.input.address
        for part in cut:
            assert part.input.address == at
            assert part.output is part.input
            assert part.message.input_count == part.message.output_count == part.input.count
            assert part.input.nbytes >= min(PIECE, 4 * elements)
            at += part.input.nbytes


def test_what_is_no_reduction_of_each_element_by_itself_stays_whole() -> None:
    whole = asked(3 * PIECE // 4, "reduce_scatter")
    assert whole.cut(TENSORS) == [whole]


def test_ranges_and_layers_go_with_their_bytes() -> None:
    third = PIECE
    whole = asked(
        3 * third // 4,
        exempt=[(0, 8), (third - 8, third + 8), (3 * third - 4, 3 * third)],
        layers=[(0, "back"), (third // 2, "front"), (2 * third, "middle")],
    )
    first, second, last = (part.message for part in whole.cut(TENSORS))
    assert [tuple(r) for r in first.exempt] == [(0, 8), (third - 8, third)]
    assert [tuple(r) for r in second.exempt] == [(0, 8)]
    assert [tuple(r) for r in last.exempt] == [(third - 4, third)]
    starts = [[row.start for row in part.layers] for part in (first, second, last)]
    assert starts == [[0, third // 2], [0], [0]]
    classes = {row.traffic_class for row in second.layers}
    assert classes == {whole.message.layers[1].traffic_class}


def test_each_piece_has_a_name_of_its_own() -> None:
    block = TENSORS.block(torch.zeros(PIECE // 2))
    for name in ("w", "w" * MAX_NAME):
        message = request("all_reduce", block, "sum", bounded(0.01), name=name)
        names = [part.message.name for part in Operation(message, block, block).cut(TENSORS)]
        assert len(set(names)) == 2
        assert all(0 < len(one) <= MAX_NAME for one in names)
    assert {part.message.name for part in asked(PIECE // 2).cut(TENSORS)} == {""}
