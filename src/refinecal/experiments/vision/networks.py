"""Residual networks for small images: ResNet-18, WideResNet-28-10, and smaller ones for CPUs.

All take images of any height and width and return logits ``(n, n_classes)``. A network is a plain
``Sequential`` of a stem, stages of blocks, and a head; each stage but the first halves height and width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from refinecal._core.errors import fail_choice, needs_extra

with needs_extra("vision", package="torch"):
    import torch
    from torch import Tensor, nn
    from torch.nn.functional import relu
    from torch.utils.flop_counter import FlopCounterMode

__all__ = [
    "NETWORKS",
    "flops",
    "n_parameters",
    "new_network",
    "resnet18",
    "small_resnet",
    "wide_resnet",
]


# ---- blocks -----------------------------------------------------------------------------------------------


class _Block(nn.Module):
    """Two convolutions, each followed by batch norm; x is added before the last ReLU (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(inputs, outputs, stride), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(_conv(outputs, outputs), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential()  # x as it is, if it has the shape
        if stride != 1 or inputs != outputs:
            thin = _conv(inputs, outputs, stride, size=1)
            self.shortcut = nn.Sequential(thin, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(relu(self.first(x), inplace=True))
        return relu(out + self.shortcut(x), inplace=True)


class _WideBlock(nn.Module):
    """Batch norm and ReLU come before each convolution, dropout between them (Zagoruyko & Komodakis, 2016).

    Where the number of channels changes, x is normalized before it takes the shortcut.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.convs = nn.Sequential(
            _conv(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            _conv(outputs, outputs),
        )
        changes = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, stride, size=1) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        ready: Tensor = self.before(x)
        out: Tensor = self.convs(ready)
        return out + (x if self.shortcut is None else self.shortcut(ready))


def _conv(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def _stages(
    widths: Sequence[int], blocks: int, block: Callable[[int, int, int], nn.Module]
) -> nn.Sequential:
    """Return stages of these widths; ``widths[0]`` is that of the stem."""
    stages = nn.Sequential()
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        first = block(inputs, outputs, 1 if number == 0 else 2)
        stages.append(
            nn.Sequential(first, *(block(outputs, outputs, 1) for _ in range(blocks - 1)))
        )
    return stages


def _head(inputs: int, n_classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, n_classes)]


def _he_normal(net: nn.Sequential) -> nn.Sequential:
    """Draw weights as He et al. (2015) do, by the number of outputs; no bias in the last layer."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return net


# ---- networks ---------------------------------------------------------------------------------------------


def resnet18(n_classes: int = 10, channels: int = 3) -> nn.Sequential:
    """Return the ResNet-18 for images of 32x32 pixels: a stem of 3x3 and stride 1, and no max-pooling.

    PyTorch's own random weights, as in the paper's experiment.

    >>> f"{n_parameters(resnet18()) / 1e6:.2f} M"
    '11.17 M'

    References
    ----------
    K. He, X. Zhang, S. Ren and J. Sun, "Deep residual learning for image recognition", CVPR 2016.
    """
    stem = [_conv(channels, 64), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    stages = _stages([64, 64, 128, 256, 512], 2, _Block)
    return nn.Sequential(*stem, stages, *_head(512, n_classes))


def wide_resnet(
    n_classes: int = 10, channels: int = 3, depth: int = 28, width: int = 10, dropout: float = 0.3
) -> nn.Sequential:
    """Return a WideResNet of ``depth`` layers with ``width`` times the channels of the thinnest.

    >>> f"{n_parameters(wide_resnet()) / 1e6:.1f} M"
    '36.5 M'

    Parameters
    ----------
    depth : int
        6 b + 4, for b blocks in each of the three stages.
    width : int
        The stages have 16, 32 and 64 times this many channels.
    dropout : float
        The share of values that are set to zero between the convolutions of a block, in training.

    References
    ----------
    S. Zagoruyko and N. Komodakis, "Wide residual networks", BMVC 2016.
    """
    if depth < 10 or depth % 6 != 4:
        raise ValueError(
            f"depth is {depth}: it must be 6 b + 4 for some b >= 1: 10, 16, 22, 28 ..."
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}: it must be at least 0 and below 1")
    widths = [16, 16 * width, 32 * width, 64 * width]
    stages = _stages(widths, (depth - 4) // 6, partial(_WideBlock, dropout=dropout))
    end = [nn.BatchNorm2d(widths[-1]), nn.ReLU(inplace=True)]
    net = nn.Sequential(_conv(channels, 16), stages, *end, *_head(widths[-1], n_classes))
    return _he_normal(net)


def small_resnet(
    n_classes: int = 10, channels: int = 3, width: int = 16, blocks: int = 1
) -> nn.Sequential:
    """Return a thin ResNet of ``6 blocks + 2`` layers whose stem halves the image: for CPUs.

    >>> n_parameters(small_resnet()), n_parameters(small_resnet(width=32))
    (78042, 308650)

    Parameters
    ----------
    width : int
        Channels of the stem and the first stage; then twice and four times as many.
    blocks : int
        In each of the three stages.
    """
    stem = [_conv(channels, width, stride=2), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    stages = _stages([width, width, 2 * width, 4 * width], blocks, _Block)
    return _he_normal(nn.Sequential(*stem, stages, *_head(4 * width, n_classes)))


NETWORKS: dict[str, Callable[..., nn.Sequential]] = {
    "resnet18": resnet18,
    "wrn28-10": wide_resnet,
    "medium": partial(small_resnet, width=32),
    "small": small_resnet,
}


def new_network(name: str, n_classes: int, channels: int, seed: int) -> nn.Sequential:
    """Return a network by its name, on the CPU, with weights that depend on the seed alone.

    torch's own stream of random numbers stays where it is.

    >>> one, same = (new_network("small", 10, 1, seed=7) for _ in range(2))
    >>> all(map(torch.equal, one.parameters(), same.parameters()))
    True
    """
    if name not in NETWORKS:
        *others, last = NETWORKS
        fail_choice("name", name, others, repr(last))
    for what, value, least in (
        ("n_classes", n_classes, 1),
        ("channels", channels, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise ValueError(f"{what} is {value}: it must be at least {least}")
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(seed))  # torch.manual_seed would seed GPUs as well
        return NETWORKS[name](n_classes, channels)


# ---- their size -------------------------------------------------------------------------------------------


def n_parameters(net: nn.Module) -> int:
    """Return how many numbers a network learns; those that batch norm only keeps do not count."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)


def flops(net: nn.Module, shape: Sequence[int]) -> int:
    """Return the floating point operations of one forward pass of one image.

    Counted by :mod:`torch.utils.flop_counter`: those of convolutions and matrix products, in
    which a multiplication and an addition are two operations, as in the peak of a GPU. Batch norm, ReLU,
    additions and pooling are not counted: they are below 1% of the operations of the paper's networks. A
    training step, forward and backward, takes about three times as many.

    >>> net = nn.Sequential(nn.Conv2d(3, 5, kernel_size=3, padding=1), nn.Flatten(), nn.Linear(320, 10))
    >>> flops(net, (3, 8, 8)) == 2 * (8 * 8 * 5 * 3 * 9 + 320 * 10)
    True

    Parameters
    ----------
    shape : sequence of int
        ``(channels, height, width)`` of the image.
    """
    if len(shape) != 3:
        raise ValueError(f"shape is {tuple(shape)}: it must be (channels, height, width)")
    image = torch.zeros((1, *shape), device=next(net.parameters()).device)
    modes = [(module, module.training) for module in net.modules()]
    net.eval()  # batch norm refuses to learn from one value per channel
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            net(image)
    finally:
        for module, mode in modes:
            module.training = mode
    return int(counter.get_total_flops())
