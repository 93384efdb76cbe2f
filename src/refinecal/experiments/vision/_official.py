"""The image sets' official files: where they are, how many bytes they have, and their MD5 sums.

The sums are those that the authors' pages state and torchvision checks. An unpacked file has its own.
"""

from __future__ import annotations

from typing import NamedTuple

CIFAR = "https://www.cs.toronto.edu/~kriz/"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class Official(NamedTuple):
    """A file as its authors publish it."""

    name: str
    md5: str
    size: int
    address: str


FILES = {
    name: Official(name, md5, size, base + name)
    for base, name, md5, size in (
        (CIFAR, "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170052171),
        (CIFAR, "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170498071),
        (CIFAR, "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", 168513733),
        (CIFAR, "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169001437),
        (SVHN, "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182040794),
        (SVHN, "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64275384),
        (FASHION, "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26421880),
        (FASHION, "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29515),
        (FASHION, "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4422102),
        (FASHION, "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5148),
    )
}

DOWNLOADS = {  # CIFAR as bytes, not as pickles
    "cifar10": ("cifar-10-binary.tar.gz",),
    "cifar100": ("cifar-100-binary.tar.gz",),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
    "fashion-mnist": tuple(name for name in FILES if name.endswith("ubyte.gz")),
}

UNPACKED = {  # MD5 sums
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}

CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CLASSES = {
    "cifar10": tuple(CIFAR10.split()),
    "cifar100": tuple(CIFAR100.split()),
    "svhn": tuple("0123456789"),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker"),
        *("Bag", "Ankle boot"),
    ),
}
