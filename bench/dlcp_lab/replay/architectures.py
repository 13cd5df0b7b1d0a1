"""Four published networks, layer by layer: VGG-16, ResNet-50, the Transformer, GPT-2 small. Pure.

Images are 224 x 224. Parameter counts equal those of the published weights, see tests.
"""

from collections.abc import Callable, Iterator
from typing import Final

from dlcp_lab.replay.shapes import Layer, Network

# VGG-16 (Simonyan and Zisserman 2014, configuration D): channels and sides of its convolutions.
_VGG: Final = (
    *((64, 224), (64, 224), (128, 112), (128, 112), (256, 56), (256, 56), (256, 56)),
    *((512, 28), (512, 28), (512, 28), (512, 14), (512, 14), (512, 14)),
)
# ResNet-50 (He et al. 2015): width, blocks and side of each stage's output.
_STAGES: Final = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))
_EXPANSION: Final = 4

_WORDS: Final = 37_000  # Transformer base (Vaswani et al. 2017), English-German: one shared table
_SENTENCE: Final = 64  # tokens; sentences are short, attention's own arithmetic is little
_GPT2_WORDS: Final = 50_257  # GPT-2 small (Radford et al. 2019)
_CONTEXT: Final = 1024  # tokens
_GPT2_WIDTH: Final = 768


def vgg16() -> Network:
    """13 convolutions and three large matrices; the first has three quarters of all parameters."""
    layers, channels = [], 3
    for number, (width, side) in enumerate(_VGG):
        layers.append(_convolution(f"conv{number}", channels, width, 3, side, bias=True))
        channels = width
    sizes = ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000))
    layers += [_linear(f"fc{number}", *size, 1) for number, size in enumerate(sizes)]
    return tuple(layers)


def resnet50() -> Network:
    """Version 1.5, the usual one: blocks stride in the 3x3 convolution."""
    layers = [_convolution("conv", 3, 64, 7, 112), _norm("norm", 64)]
    channels, side = 64, 56
    for stage, (width, blocks, after) in enumerate(_STAGES):
        for block in range(blocks):
            layers += _bottleneck(f"{stage}.{block}", channels, width, (side, after))
            channels, side = width * _EXPANSION, after
    return (*layers, _linear("fc", channels, 1000, 1))


def transformer() -> Network:
    """Base: six encoder and six decoder layers, width 512; both tables and the last matrix are one.

    Attention has no biases, as in the paper's formulas. The paper says 65 million parameters; these
    are 63.0 million, with a vocabulary of 37,000 exactly.
    """
    width, inner = 512, 2048
    layers = [Layer("table", ((_WORDS, width),), lookup=True)]
    for side, attentions in (("encoder", 1), ("decoder", 2)):
        for number in range(6):
            name = f"{side}{number}"
            for attention in range(attentions):
                layers += _attention(f"{name}.attention{attention}", width, _SENTENCE)
            layers += _feed_forward(name, width, inner, _SENTENCE)
    return (*layers, Layer("words", (), _WORDS * width * _SENTENCE, tied_to="table"))


def gpt2_small() -> Network:
    """124 M parameters: twelve layers, width 768, norms first; the last matrix is the table."""
    width, positions = _GPT2_WIDTH, _CONTEXT
    layers = [
        Layer("table", ((_GPT2_WORDS, width),), lookup=True),
        Layer("places", ((positions, width),), lookup=True),
    ]
    for number in range(12):
        name = f"h{number}"
        heads = 2 * positions**2 * width  # scores, and the weighted values
        layers += [
            _norm(f"{name}.norm0", width),
            _linear(f"{name}.to_heads", width, 3 * width, positions),
            Layer(f"{name}.heads", (), heads),
            _linear(f"{name}.from_heads", width, width, positions),
            _norm(f"{name}.norm1", width),
            _linear(f"{name}.in", width, 4 * width, positions),
            _linear(f"{name}.out", 4 * width, width, positions),
        ]
    words = Layer("words", (), _GPT2_WORDS * width * positions, tied_to="table")
    return (*layers, _norm("norm", width), words)


def _bottleneck(name: str, channels: int, width: int, sides: tuple[int, int]) -> Iterator[Layer]:
    before, after = sides
    wide = width * _EXPANSION
    for number, (into, out, kernel, side) in enumerate(
        ((channels, width, 1, before), (width, width, 3, after), (width, wide, 1, after))
    ):
        yield _convolution(f"{name}.conv{number}", into, out, kernel, side)
        yield _norm(f"{name}.norm{number}", out)
    if channels != wide:
        yield _convolution(f"{name}.down", channels, wide, 1, after)
        yield _norm(f"{name}.down_norm", wide)


def _attention(name: str, width: int, positions: int) -> Iterator[Layer]:
    """Four square matrices, the heads between them, and the norm after them."""
    matrix = ((width, width),)
    for part in ("query", "key", "value"):
        yield Layer(f"{name}.{part}", matrix, width * width * positions)
    yield Layer(f"{name}.heads", (), 2 * positions**2 * width)
    yield Layer(f"{name}.from_heads", matrix, width * width * positions)
    yield _norm(f"{name}.norm", width)


def _feed_forward(name: str, width: int, inner: int, positions: int) -> Iterator[Layer]:
    yield _linear(f"{name}.in", width, inner, positions)
    yield _linear(f"{name}.out", inner, width, positions)
    yield _norm(f"{name}.norm", width)


def _convolution(
    name: str, into: int, out: int, kernel: int, side: int, *, bias: bool = False
) -> Layer:
    shapes = ((out, into, kernel, kernel), *([(out,)] if bias else []))
    return Layer(name, shapes, out * into * kernel**2 * side**2)


def _linear(name: str, into: int, out: int, positions: int) -> Layer:
    return Layer(name, ((out, into), (out,)), out * into * positions)


def _norm(name: str, width: int) -> Layer:
    return Layer(name, ((width,), (width,)))


NETWORKS: Final[dict[str, Callable[[], Network]]] = {
    "vgg16": vgg16,
    "resnet50": resnet50,
    "transformer": transformer,
    "gpt2-small": gpt2_small,
}
