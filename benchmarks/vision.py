"""Time the parts of the vision experiment: ``python -m benchmarks.vision --help``.

Augmentation of a whole batch races the same recipe one image at a time: in NumPy as it is mostly written, in
NumPy with every avoidable call avoided, and in Pillow. The input of a step (rows picked, augmented, brought
to scale, as float32) races the same three. A step of training races a plain torch loop whose images are
ready. All that is measured after an epoch is set against the epoch itself: here, from some of its steps,
and on a GPU that does the operations of its network at a part of its peak, while one core measures.
One thread; seconds of the processor, so that other work on the machine counts little.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import cross_entropy

from benchmarks.machine import with_libraries
from benchmarks.report import milliseconds, plain, targets
from benchmarks.results import Finding, write
from refinecal.experiments.vision import cost
from refinecal.experiments.vision.augment import Augmentation, Normalization
from refinecal.experiments.vision.hardware import new_devices
from refinecal.experiments.vision.learner import Learner
from refinecal.experiments.vision.networks import new_network
from refinecal.experiments.vision.recipe import Recipe
from refinecal.experiments.vision.training import EpochMetrics, new_monitor

RESULTS = Path(__file__).parent / "results"

OURS = "refinecal"
NUMPY, LEAN, PILLOW = (
    "NumPy, image by image",
    "NumPy, image by image, lean",
    "Pillow, image by image",
)
PLAIN = "plain torch, images ready"
METRICS, EPOCH = "all metrics of an epoch", "an epoch of ResNet-18, from its steps"
ON_GPU = {  # by the part of the peak that is assumed to be reached
    part: f"an epoch of ResNet-18 on an A100 at {100 * part:.0f} % of its peak, from its operations"
    for part in (cost.UTILISATION, cost.MOST)
}
N_TRAIN, N_VAL, N_TEST = 45_000, 5_000, 10_000  # CIFAR's
BATCH, CHANNELS, SIDE = 128, 3, 32
CROP, HOLE = 4, 16
LARGE = 64 * 2**20  # bytes of a tensor as a training has them
FEW = 32  # images in a step of ResNet-18, which takes a second
LEARNED = 4096  # images that the loops learn from

Images = NDArray[np.uint8]
Way = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """Seconds of one call of each way, in turn."""

    case: str
    times: dict[str, list[float]]

    def seconds(self, way: str) -> float:
        """Return the median."""
        return median(self.times[way])

    def ratio(self, way: str, to: str = OURS) -> float:
        """Return the median of the ratios, turn by turn."""
        pairs = zip(self.times[way], self.times[to], strict=True)
        return median(a / b for a, b in pairs)


def turns(case: str, ways: Mapping[str, Way], repeats: int, seconds: float = 0.0) -> Result:
    """Time all ways in turn; a turn has so many calls that it takes about so many seconds."""
    numbers = {}
    for name, way in ways.items():
        way()  # what only a first call does: start, allocate, compile
        numbers[name] = max(1, round(seconds / _clocked(way, 1)))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            times[name].append(_clocked(way, numbers[name]))
    return Result(case, times)


def _clocked(way: Way, calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        way()
    return max(time.process_time() - start, 1e-9) / calls


def pictures(n: int) -> tuple[Images, NDArray[np.int64]]:
    """Return random images and labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, CHANNELS, SIDE, SIDE), dtype=np.uint8)
    return images, rng.integers(0, 10, n)


def keep_memory() -> None:
    """Free a large tensor.

    Thereafter glibc keeps what is freed instead of returning it, as it does in any training, where tensors
    are large: else pages of small temporary tensors would be asked for again and again.
    """
    torch.ones(LARGE, dtype=torch.uint8)


# ---- one image at a time ----------------------------------------------------------------------------------


def numpy_one(image: Images, rng: np.random.Generator) -> Images:
    """Return a changed copy of an image (channels, height, width), written without haste."""
    room = np.pad(image, ((0, 0), (CROP, CROP), (CROP, CROP)))
    row, column = rng.integers(0, 2 * CROP + 1), rng.integers(0, 2 * CROP + 1)
    image = room[:, row : row + SIDE, column : column + SIDE]
    if rng.random() < 0.5:
        image = image[:, :, ::-1]
    mask = np.ones((SIDE, SIDE), np.uint8)
    row, column = rng.integers(0, SIDE), rng.integers(0, SIDE)
    top, bottom = np.clip([row - HOLE // 2, row + HOLE // 2], 0, SIDE)
    left, right = np.clip([column - HOLE // 2, column + HOLE // 2], 0, SIDE)
    mask[top:bottom, left:right] = 0
    return image * mask


def lean_one(image: Images, rng: np.random.Generator) -> Images:
    """Do the same with as few calls as one can."""
    row, column = rng.integers(0, 2 * CROP + 1, 2)
    room = np.zeros((CHANNELS, SIDE + 2 * CROP, SIDE + 2 * CROP), np.uint8)
    room[:, CROP:-CROP, CROP:-CROP] = image
    image = room[:, row : row + SIDE, column : column + SIDE]
    row, column = rng.integers(0, SIDE, 2)
    if rng.random() < 0.5:
        image = image[:, :, ::-1]
    top, left = max(row - HOLE // 2, 0), max(column - HOLE // 2, 0)
    image[:, top : row + HOLE // 2, left : column + HOLE // 2] = 0
    return image


def pillow_one(pixels: Images, rng: np.random.Generator) -> Images:
    """Do the same to pixels (height, width, channels) as an image of Pillow, which data sets hand out."""
    room = Image.new("RGB", (SIDE + 2 * CROP, SIDE + 2 * CROP))
    room.paste(Image.fromarray(pixels), (CROP, CROP))
    row, column = rng.integers(0, 2 * CROP + 1, 2).tolist()
    image = room.crop((column, row, column + SIDE, row + SIDE))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    row, column = rng.integers(0, SIDE, 2).tolist()
    top, left = max(row - HOLE // 2, 0), max(column - HOLE // 2, 0)
    image.paste((0, 0, 0), (left, top, min(column + HOLE // 2, SIDE), min(row + HOLE // 2, SIDE)))
    return np.asarray(image).transpose(2, 0, 1)


def augmentations(n: int, repeats: int) -> Result:
    """Time the augmentation of a batch; everybody returns one array of uint8."""
    x, _ = pictures(n)
    images, generator = torch.from_numpy(x), torch.Generator().manual_seed(0)
    augment, rng = Augmentation(CROP, True, HOLE), np.random.default_rng(0)
    tall = x.transpose(0, 2, 3, 1).copy()
    ways: dict[str, Way] = {
        OURS: lambda: augment(images, generator),
        NUMPY: lambda: np.stack([numpy_one(each, rng) for each in x]),
        LEAN: lambda: np.stack([lean_one(each, rng) for each in x]),
        PILLOW: lambda: np.stack([pillow_one(each, rng) for each in tall]),
    }
    keep_memory()
    case = f"augmentation of {n} images of {CHANNELS} x {SIDE} x {SIDE}"
    return turns(case, ways, repeats, seconds=0.1)


def inputs(n: int, repeats: int) -> Result:
    """Time all that is done to images before a network sees them: rows picked, augmented, scaled."""
    x, _ = pictures(LEARNED)
    rows = np.random.default_rng(1).permutation(LEARNED)[:n]
    images, batch = torch.from_numpy(x), torch.from_numpy(rows)
    scale, generator = Normalization.of(images), torch.Generator().manual_seed(0)
    augment, rng = Augmentation(CROP, True, HOLE), np.random.default_rng(0)
    mean, std = (np.float32(each).reshape(-1, 1, 1) for each in (scale.mean, scale.std))
    tall = x.transpose(0, 2, 3, 1).copy()

    def ours() -> torch.Tensor:
        return scale(augment(images.index_select(0, batch), generator))

    def scaled(image: Images) -> NDArray[np.float32]:
        return (image.astype(np.float32) - mean) / std

    def pillow(row: int) -> NDArray[np.float32]:
        return scaled(pillow_one(tall[row], rng))

    ways: dict[str, Way] = {
        OURS: ours,
        NUMPY: lambda: torch.from_numpy(np.stack([scaled(numpy_one(x[i], rng)) for i in rows])),
        LEAN: lambda: torch.from_numpy(np.stack([scaled(lean_one(x[i], rng)) for i in rows])),
        PILLOW: lambda: torch.from_numpy(np.stack([pillow(i) for i in rows])),
    }
    keep_memory()
    return turns(f"input of {n} images, float32", ways, repeats, seconds=0.1)


# ---- a step of training -----------------------------------------------------------------------------------


def steps(model: str, batch: int, repeats: int, precision: str = "float32") -> Result:
    """Time one step: ours augments and scales its images, the plain loop is given them ready."""
    x, y = pictures(LEARNED)
    recipe = Recipe("cifar10", model, batch=batch, precision=precision)
    learner = Learner(recipe, x, y, np.arange(LEARNED), 10, 0, new_devices("cpu"))
    learner.net.train()
    generator = torch.Generator().manual_seed(0)
    net = new_network(model, 10, CHANNELS, seed=0).train()
    optimizer = torch.optim.SGD(
        net.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    pixels, labels = torch.from_numpy(x), torch.from_numpy(y)
    images = Normalization.of(pixels)(pixels)

    def rows() -> torch.Tensor:
        return torch.randint(LEARNED, (batch,), generator=generator)

    def plain_step() -> None:
        chosen = rows()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = cross_entropy(net(images[chosen]), labels[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    ways: dict[str, Way] = {OURS: lambda: learner.step(rows(), generator), PLAIN: plain_step}
    return turns(f"one step, {model}, batch {batch}, {precision}", ways, repeats, seconds=0.5)


# ---- what is measured after an epoch ----------------------------------------------------------------------


def measuring(n_classes: int, stepped: Result, batch: int, repeats: int) -> Result:
    """Time every metric of validation and test images, and reckon the epoch before from steps of a batch."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, n_classes, n) for n in (N_VAL, N_TEST)]
    metrics, epoch = EpochMetrics(*labels, new_monitor()), 0

    def logits(y: NDArray[np.int64]) -> NDArray[np.float32]:
        right = 6 * np.eye(n_classes)[y] * (rng.random((len(y), 1)) < 0.9)
        return (right + 1.5 * rng.normal(size=(len(y), n_classes))).astype(np.float32)

    several = [tuple(map(logits, labels)) for _ in range(3)]

    def measure() -> None:
        nonlocal epoch
        epoch += 1
        metrics.update(epoch, 1.0, *several[epoch % len(several)])

    case = f"{n_classes} classes, {N_TRAIN} + {N_VAL} + {N_TEST} images"
    found = turns(case, {METRICS: measure}, repeats, seconds=0.2)
    found.times[EPOCH] = [N_TRAIN / batch * stepped.seconds(OURS)] * repeats
    operations = cost.training_flops(cost.FORWARD["resnet18"], N_TRAIN, 0, epochs=1)
    for part, name in ON_GPU.items():
        found.times[name] = [3600 * cost.hours(operations, utilisation=part)] * repeats
    return found


# ---- the report -------------------------------------------------------------------------------------------


def findings(results: Sequence[Result]) -> list[Finding]:
    """Return every target with what was found."""
    found = []
    for result in results:
        for way in (NUMPY, LEAN, PILLOW):
            if way in result.times:
                ratio = result.ratio(way)
                found.append(Finding(f"{way} / refinecal, >= 10", result.case, ratio, ratio >= 10))
        if PLAIN in result.times:
            ratio = result.ratio(PLAIN)
            found.append(Finding(f"{PLAIN} / refinecal, >= 1", result.case, ratio, ratio >= 1))
        if METRICS in result.times:
            for epoch in (EPOCH, *ON_GPU.values()):
                share = result.ratio(METRICS, to=epoch)
                target = f"{METRICS} / {epoch}, <= 0.02"
                found.append(Finding(target, result.case, share, share <= 0.02))
    return found


def page(results: Sequence[Result], found: Sequence[Finding], repeats: int, machine: str) -> str:
    """Return the results as Markdown."""
    lines = [
        f"`python -m benchmarks.vision`: median of {repeats} turns, one thread, time of the processor."
    ]
    for result in results:
        first = next(iter(result.times))
        lines += ["", result.case, "", f"| | ms | ratio to {first} |", "| --- | ---: | ---: |"]
        for name in result.times:
            ms, ratio = milliseconds(result.seconds(name)), plain(result.ratio(name, first))
            lines.append(f"| {name} | {ms} | {ratio} |")
    return "\n".join([*lines, "", *targets(found), "", machine, ""])


def main() -> None:
    """Run all cases, print the page, and write it unless it was quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small cases only; writes nothing unless told"
    )
    parser.add_argument("--repeats", type=int, help="how many turns")
    parser.add_argument("--out", type=Path, help="folder for the JSON and Markdown files")
    options = parser.parse_args()
    repeats = options.repeats or (3 if options.quick else 15)
    machine = with_libraries(("torch", "pillow"))
    torch.set_num_threads(1)
    results = [augmentations(BATCH, repeats), inputs(BATCH, repeats)]
    results.append(steps("small", BATCH, repeats))
    if not options.quick:
        results.append(steps("small", BATCH, repeats, "bfloat16"))
    results.append(steps("resnet18", FEW, min(repeats, 5)))
    stepped = results[-1]
    results += [measuring(n_classes, stepped, FEW, repeats) for n_classes in (10, 100)]
    found = findings(results)
    text = page(results, found, repeats, f"{machine.processor}; {machine.listed}.")
    print(text)
    folder = options.out or (None if options.quick else RESULTS)
    if folder:
        content = {"machine": asdict(machine), "results": [asdict(result) for result in results]}
        write(folder, "vision", content | {"findings": [asdict(each) for each in found]}, text)


if __name__ == "__main__":
    main()
