"""Random crops, flips and holes for a whole batch of images at once, and the scale that networks like.

Images are tensors ``(n, c, h, w)``. Everything is a tensor operation on the device where they are: there is
no loop over images. A crop is a window of the padded image, and a hole a window of a canvas that has one:
the rows of either are copied whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

from refinecal._core.errors import needs_extra

with needs_extra("vision", package="torch"):
    import torch
    from torch import Tensor
    from torch.nn.functional import pad

LEVELS = 256  # of a pixel in eight bits


class Draws(NamedTuple):
    """The random numbers of a batch of n images."""

    corners: Tensor  # (2, n): row and column of the crop's upper left corner in the padded image
    flipped: Tensor  # (n,) of 0 and 1
    centers: Tensor  # (2, n): row and column of the hole's center


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Crop, flip and cut a hole into each image of a batch, each in its own way.

    As in the paper's recipe, and in this order: ``crop`` zeros are put on every side of the image, and a
    window of the image's own size is taken from it, all ``(2 crop + 1)²`` places being equally likely; left
    and right are exchanged with probability 1/2; a square of side ``cutout``, whose center is equally likely
    to be any pixel, is set to zero as far as it lies inside the image. Zero is black if, as in the recipe,
    :class:`Normalization` comes later.

    Parameters
    ----------
    crop : int
        How far a crop may move in each direction; 0 for none.
    flip : bool
        Whether to exchange left and right in half of the images.
    cutout : int
        The side of the hole in pixels; 0 for none.

    Examples
    --------
    >>> images = torch.full((128, 3, 32, 32), 255, dtype=torch.uint8)
    >>> seen = Augmentation()(images, torch.Generator().manual_seed(0))
    >>> seen.shape, seen.dtype
    (torch.Size([128, 3, 32, 32]), torch.uint8)
    >>> at_most = (16 * 16 + 32 * 32 - 28 * 28) / 32**2  # a whole hole, and four rows and columns
    >>> bool((seen == 0).float().mean(dim=(1, 2, 3)).max() <= at_most)
    True

    References
    ----------
    Appendix E of the paper; T. DeVries and G. W. Taylor, "Improved regularization of convolutional neural
    networks with cutout", arXiv:1708.04552.
    """

    crop: int = 4
    flip: bool = True
    cutout: int = 16

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return a changed copy of the images, of the same shape and type."""
        return self.apply(images, self.draw(images, generator))

    def draw(self, images: Tensor, generator: torch.Generator) -> Draws:
        """Return random numbers for these images, on their device.

        They are drawn where the generator is: one on the CPU gives every device the same. The numbers of one
        step are the same whichever others are switched off.
        """
        n, _, h, w = images.shape
        places = 2 * self.crop + 1
        drawn = torch.stack(
            [
                torch.randint(bound, (n,), generator=generator, device=generator.device)
                for bound in (places, places, 2, h, w)
            ]
        ).to(images.device, non_blocking=True)
        return Draws(drawn[:2], drawn[2], drawn[3:])

    def apply(self, images: Tensor, draws: Draws) -> Tensor:
        """Return the copy of the images that these random numbers make."""
        n, _, h, w = images.shape
        if not (n and (self.crop or self.flip or self.cutout)):
            return images.clone()
        if self.crop:
            images = _windows(pad(images, 4 * (self.crop,)), draws.corners, h, w)
        if self.flip:
            both = torch.cat([images, images.flip(3)])
            images = both.index_select(0, draws.flipped * n + _count(n, images.device))
        if self.cutout:
            canvas = _canvas(self.cutout, h, w, images.dtype, images.device)
            # its middle, at (h, w), comes to where the center of the hole shall be
            corners = torch.stack([h - draws.centers[0], w - draws.centers[1]])
            kept = _windows(canvas, corners, h, w)
            images = images.mul_(kept) if self.crop or self.flip else images * kept
        return images


def _windows(source: Tensor, corners: Tensor, h: int, w: int) -> Tensor:
    """Return the windows of height h and width w that have these upper left corners.

    ``source`` has shape ``(n, c, H, W)``, or ``(1, c, H, W)`` for windows of one and the same image.
    """
    n, width = corners.shape[1], source.shape[3]
    top, left = corners
    begin = _row_starts(tuple(source.shape), h, source.device) + (width * top + left).view(n, 1, 1)
    flat = source.reshape(-1)
    pieces = flat.as_strided((len(flat) - w + 1, w), (1, 1))  # every w neighbors, copied by none
    return pieces.index_select(0, begin.view(-1)).view(n, source.shape[1], h, w)


@lru_cache(maxsize=32)
def _row_starts(shape: tuple[int, ...], h: int, device: torch.device) -> Tensor:
    """Return where, in the flattened images, the first h rows of each channel start."""
    n, c, rows, columns = shape
    return columns * (rows * _count(n * c, device).view(n, c, 1) + _count(h, device))


@lru_cache(maxsize=32)
def _count(n: int, device: torch.device) -> Tensor:
    return torch.arange(n, device=device)


@lru_cache(maxsize=32)
def _canvas(side: int, h: int, w: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ones with a hole of zeros in the middle, twice as high and wide as an image."""
    canvas = torch.ones((1, 1, 2 * h, 2 * w), dtype=dtype, device=device)
    top, left = h - side // 2, w - side // 2
    canvas[..., max(top, 0) : top + side, max(left, 0) : left + side] = 0
    return canvas


# ---- the scale of pixels ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Normalization:
    """Bring each channel of the training images to mean 0 and standard deviation 1.

    Parameters
    ----------
    mean, std : tuple of float
        One number for each channel, on the scale of the pixels: 0 to 255.

    Examples
    --------
    >>> images = torch.tensor([0, 0, 255, 255], dtype=torch.uint8).view(1, 1, 2, 2)
    >>> scale = Normalization.of(images)
    >>> scale
    Normalization(mean=(127.5,), std=(127.5,))
    >>> scale(images).flatten().tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> Self:
        """Return the scale of these images, from exact counts: their order plays no part.

        A channel that never changes is only centered.
        """
        level = torch.arange(LEVELS, dtype=torch.float64, device="cpu")
        moments = []
        for channel in images.unbind(1):
            counts = torch.bincount(channel.reshape(-1), minlength=LEVELS).cpu().double()
            mean = float(counts @ level / counts.sum())
            moments.append((mean, float(counts @ (level - mean) ** 2 / counts.sum()) ** 0.5 or 1.0))
        mean, std = zip(*moments, strict=True)
        return cls(mean, std)

    def __call__(self, images: Tensor, channels_last: bool = False) -> Tensor:
        """Return the images as float32; ``channels_last`` is about the order in memory."""
        factor, shift = _affine(self.mean, self.std, images.device)
        scaled = images.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
        scaled.mul_(factor).add_(shift)
        # at the end: arithmetic on channels that are side by side is slow on a CPU
        return scaled.contiguous(memory_format=torch.channels_last) if channels_last else scaled


@lru_cache(maxsize=32)
def _affine(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return factor and summand of each channel, on the device."""
    numbers = torch.tensor([mean, std], dtype=torch.float64, device="cpu")
    factor = 1 / numbers[1]
    both = torch.stack([factor, -numbers[0] * factor]).float().to(device).view(2, -1, 1, 1)
    return both[0], both[1]
