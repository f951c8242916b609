import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.errors import DataError
from fedge.data.augment import Augment, draw_augmentation

IMAGES = torch.arange(1.0, 1 + 6 * 2 * 5 * 4).view(6, 2, 5, 4)
ROWS = np.arange(6)


def augmented(options: Augment, rows: np.ndarray = ROWS, seed: int = 1, round: int = 1) -> torch.Tensor:
    return options.train(IMAGES[rows], draw_augmentation(len(IMAGES), seed, round)[rows])


def test_half_of_the_images_are_mirrored() -> None:
    rows = np.zeros(4000, int) + np.arange(4000) % 6
    images = IMAGES[rows]
    given_out = Augment(flip=True).train(images, draw_augmentation(4000, 1, 1))
    mirrored = (given_out == images.flip(-1)).all(-1).all(-1).all(-1)
    kept = (given_out == images).all(-1).all(-1).all(-1)
    assert bool((mirrored ^ kept).all())
    assert abs(int(mirrored.sum()) - 2000) < 5 * 32  # five standard deviations of 4,000 tosses


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(0, 2), st.booleans(), st.integers(0, 100))
def test_crop_is_part_of_the_padded_image(crop: int, pad: int, flip: bool, seed: int) -> None:
    options = Augment(flip=flip, crop=crop, pad=pad)
    if crop > 4 + 2 * pad:
        with pytest.raises(DataError, match=rf"data\.augment\.crop: {crop} pixels cannot be cropped from 5x4"):
            options.shape((2, 5, 4))
        return
    assert options.shape((2, 5, 4)) == (2, crop, crop)
    cropped = augmented(options, seed=seed)
    assert cropped.shape == (6, 2, crop, crop)
    for image, piece in zip(IMAGES, cropped, strict=True):
        padded = torch.nn.functional.pad(image, [pad] * 4)
        windows = [w for one in (padded, padded.flip(-1)) for w in one.unfold(1, crop, 1).unfold(2, crop, 1).unbind(1)]
        assert any(bool((w == piece[:, None]).flatten(2).all(-1).all(0).any()) for w in windows)


def test_every_crop_position_occurs() -> None:
    rows = np.arange(600) % 6
    cropped = Augment(crop=4).train(IMAGES[rows], draw_augmentation(600, 1, 1))
    tops = (cropped[:, 0, 0, 0] - IMAGES[rows, 0, 0, 0]) / 4
    assert sorted(set(tops.tolist())) == [0, 1]


def test_augmentation_of_a_sample_does_not_depend_on_other_samples() -> None:
    options = Augment(flip=True, crop=3, pad=1)
    some = np.array([4, 1])
    assert torch.equal(augmented(options, some), augmented(options)[some])
    assert torch.equal(augmented(options), augmented(options))


def test_augmentation_differs_by_seed_and_round() -> None:
    options = Augment(crop=2)
    assert not torch.equal(augmented(options), augmented(options, seed=2))
    assert not torch.equal(augmented(options), augmented(options, round=2))


def test_test_images_are_cropped_in_the_centre() -> None:
    assert torch.equal(Augment(flip=True).test(IMAGES), IMAGES)
    assert torch.equal(Augment(crop=2).test(IMAGES), IMAGES[:, :, 1:3, 1:3])
    assert Augment(crop=6, pad=1).test(IMAGES).shape == (6, 2, 6, 6)


def test_only_images_can_be_augmented() -> None:
    with pytest.raises(DataError, match=r"data\.augment: expected images .* got inputs of shape \(5,\)"):
        Augment(flip=True).shape((5,))
