"""Augmentation of whole batches against one image at a time in NumPy, and the laws of what is drawn."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from refinecal.experiments.vision.augment import Augmentation, Normalization

LEAST_P = 1e-3  # seeds are fixed, so that a test either always passes or never


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=1, c=3, h=32, w=32, dtype=torch.uint8):
    """No pixel is zero, so that zeros are seen."""
    return torch.randint(1, 256, (n, c, h, w), generator=seeded(99)).to(dtype)


def one_by_one(images, draws, augmentation):
    """The recipe as a person reads it, one image at a time."""
    made = []
    for i, whole in enumerate(images.numpy()):
        image, (h, w) = whole, whole.shape[1:]
        if p := augmentation.crop:
            row, column = draws.corners[:, i].tolist()
            image = np.pad(image, ((0, 0), (p, p), (p, p)))[:, row : row + h, column : column + w]
        if augmentation.flip and draws.flipped[i]:
            image = image[:, :, ::-1]
        if side := augmentation.cutout:
            row, column = (draws.centers[:, i] - side // 2).tolist()
            image = image.copy()
            image[:, max(row, 0) : max(row + side, 0), max(column, 0) : max(column + side, 0)] = 0
        made.append(image)
    return torch.from_numpy(np.stack(made))


# ---- what becomes of an image -----------------------------------------------------------------------------


@given(
    st.builds(Augmentation, st.integers(0, 6), st.booleans(), st.integers(0, 40)),
    st.tuples(*(st.integers(1, most) for most in (5, 3, 20, 20))),
    st.sampled_from([torch.uint8, torch.float32, torch.float64]),
    st.integers(0, 1000),
)
def test_as_one_by_one(augmentation, shape, dtype, seed):
    images = pictures(*shape, dtype=dtype)
    draws = augmentation.draw(images, seeded(seed))
    found = augmentation(images, seeded(seed))
    assert found.dtype == dtype
    assert torch.equal(found, one_by_one(images, draws, augmentation))


def test_as_one_by_one_at_the_papers_size():
    images, augmentation = pictures(500), Augmentation()
    draws = augmentation.draw(images, seeded())
    assert torch.equal(augmentation.apply(images, draws), one_by_one(images, draws, augmentation))


@pytest.mark.parametrize(
    "view",
    [
        lambda images: images.to(memory_format=torch.channels_last),
        lambda images: images[1:],
        lambda images: images.transpose(2, 3),
        lambda images: images[:, :, ::2, 1::2],
        lambda images: images[:1].expand(4, -1, -1, -1),
    ],
)
@pytest.mark.parametrize(
    "augmentation", [Augmentation(), Augmentation(crop=0), Augmentation(0, False)]
)
def test_any_order_in_memory(view, augmentation):
    images = view(pictures(4, h=16, w=12))
    expected = augmentation(images.clone(memory_format=torch.contiguous_format), seeded())
    assert torch.equal(augmentation(images, seeded()), expected)


@pytest.mark.parametrize("options", [(4, True, 16), (0, False, 0), (0, True, 0), (0, False, 3)])
def test_a_copy_is_returned(options):
    images = pictures(3)
    before = images.clone()
    made = Augmentation(*options)(images, seeded())
    made.fill_(7)
    assert torch.equal(images, before)


def test_without_anything_nothing_changes():
    images = pictures(3)
    assert torch.equal(Augmentation(0, False, 0)(images, seeded()), images)


def test_no_images():
    assert Augmentation()(pictures(5)[:0], seeded()).shape == (0, 3, 32, 32)


# ---- what is drawn ----------------------------------------------------------------------------------------


def equally_likely(counts):
    return stats.chisquare(counts).pvalue > LEAST_P


def test_every_offset_is_equally_likely():
    """Seen in the images: one bright pixel tells where its crop was taken."""
    image = torch.zeros((1, 1, 9, 9), dtype=torch.uint8)
    image[..., 4, 4] = 255
    made = Augmentation(flip=False, cutout=0)(image.expand(20_000, -1, -1, -1), seeded())
    assert (made.flatten(1).sum(1) == 255).all()  # it is never lost: 4 pixels on every side
    counts = np.bincount(made.flatten(1).float().argmax(1).numpy(), minlength=81)
    assert equally_likely(counts)


def test_half_are_flipped():
    image = torch.tensor([255, 0], dtype=torch.uint8).view(1, 1, 1, 2)
    made = Augmentation(crop=0, cutout=0)(image.expand(10_000, -1, -1, -1), seeded())
    assert equally_likely(np.bincount(made[:, 0, 0, 0] == 0, minlength=2))


def test_every_centre_is_equally_likely():
    """A hole of one pixel is its centre, also at the border."""
    image = torch.ones((1, 1, 6, 8), dtype=torch.uint8)
    made = Augmentation(crop=0, flip=False, cutout=1)(image.expand(20_000, -1, -1, -1), seeded())
    assert (made.flatten(1).sum(1) == 47).all()
    counts = np.bincount(made.flatten(1).float().argmin(1).numpy(), minlength=48)
    assert equally_likely(counts)


def test_how_often_a_pixel_lies_in_the_hole():
    """By the formula: so many of the 32 centers, in each direction, reach it."""
    image = torch.ones((1, 1, 32, 32), dtype=torch.uint8)
    n = 20_000
    made = Augmentation(crop=0, flip=False)(image.expand(n, -1, -1, -1), seeded())
    place = np.arange(32)
    # the hole covers centre - 8 .. centre + 7: centers from place - 7 to place + 8 reach it
    reach = np.minimum(place + 8, 31) - np.maximum(place - 7, 0) + 1
    expected = np.outer(reach, reach) / 32**2
    found = (made == 0).float().mean(dim=(0, 1)).numpy()
    assert np.abs(found - expected).max() < 5 * 0.5 / np.sqrt(n)  # 5 standard errors at most


def test_numbers_are_independent():
    """Correlations of 7 sequences are those of independent ones, within 4.5 standard errors."""
    n = 20_000
    draws = Augmentation().draw(torch.empty((n, 1, 32, 32)), seeded())
    rows = torch.cat([draws.corners, draws.flipped[None], draws.centers]).double()
    rows = torch.cat([rows, rows[:2].roll(1, dims=1)])  # also of neighbours
    others = torch.corrcoef(rows) - torch.eye(7)
    assert others.abs().max() < 4.5 / np.sqrt(n)


def test_the_generator_decides():
    images = pictures(64)
    generator = seeded(3)
    first, second = (Augmentation()(images, generator) for _ in range(2))
    assert not torch.equal(first, second)
    generator = seeded(3)
    torch.rand(5)  # of another stream
    assert torch.equal(first, Augmentation()(images, generator))
    assert torch.equal(second, Augmentation()(images, generator))


def test_steps_do_not_disturb_each_other():
    images = pictures(50)
    whole = Augmentation().draw(images, seeded())
    less = Augmentation(crop=0, flip=False, cutout=0).draw(images, seeded())
    assert torch.equal(whole.flipped, less.flipped)
    assert torch.equal(whole.centers, less.centers)
    assert not less.corners.any()


# ---- the scale of pixels ----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 3), st.integers(2, 6), st.booleans(), st.integers(0, 99))
def test_mean_zero_and_deviation_one(n, c, side, channels_last, seed):
    images = torch.randint(0, 256, (n, c, side, side), generator=seeded(seed)).to(torch.uint8)
    images[0, :, 0, :2] = torch.tensor([0, 255], dtype=torch.uint8)
    scale = Normalization.of(images)
    pixels = images.numpy().astype(float)
    np.testing.assert_allclose(scale.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(scale.std, pixels.std(axis=(0, 2, 3)), rtol=1e-12)
    made = scale(images, channels_last)
    expected = (pixels - np.reshape(scale.mean, (-1, 1, 1))) / np.reshape(scale.std, (-1, 1, 1))
    np.testing.assert_allclose(made.numpy(), expected, atol=2e-6)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert made.dtype == torch.float32
    assert made.is_contiguous(memory_format=layout)


def test_order_and_layout_do_not_matter():
    images = pictures(20)
    scale = Normalization.of(images)
    assert Normalization.of(images.flip(0)) == scale
    assert Normalization.of(images.to(memory_format=torch.channels_last)) == scale
    other = images.to(memory_format=torch.channels_last)
    assert torch.equal(scale(images), scale(other))


def test_a_constant_channel_is_centred():
    images = torch.full((2, 1, 3, 3), 9, dtype=torch.uint8)
    scale = Normalization.of(images)
    assert scale == Normalization((9.0,), (1.0,))
    assert not scale(images).any()


def test_the_images_stay_as_they_are():
    images = pictures(2, dtype=torch.float32)
    before = images.clone()
    Normalization((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))(images)
    assert torch.equal(images, before)


def test_black_is_cut_before_scaling():
    """Padding and holes are black, which is below the mean, as in the published recipe."""
    images = pictures(8)
    scale = Normalization.of(images)
    made = Augmentation()(images, seeded())
    black = (-torch.tensor(scale.mean) / torch.tensor(scale.std)).view(1, 3, 1, 1).expand_as(made)
    torch.testing.assert_close(scale(made)[made == 0], black[made == 0])


def test_modes_of_torch_may_change_between_calls():
    """What is kept for later is made in one mode and used in another."""
    images, weight = pictures(3, h=10, w=11), torch.ones(3, 3, 1, 1, requires_grad=True)
    scale, augmentation = Normalization((1.5,) * 3, (2.5,) * 3), Augmentation(3, True, 5)
    with torch.inference_mode(), torch.device("meta"):
        expected = scale(augmentation(images, seeded()))
    made = scale(augmentation(images, seeded()))
    torch.nn.functional.conv2d(made, weight).sum().backward()
    assert torch.equal(made, expected)
    torch.testing.assert_close(weight.grad[0].flatten(), made.sum(dim=(0, 2, 3)))
