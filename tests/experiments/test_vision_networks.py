"""The networks of the vision experiment: published sizes, shapes, gradients, seeds, operations counted."""

from itertools import chain

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import conv2d, cross_entropy, relu
from torch.utils.flop_counter import FlopCounterMode

from refinecal.experiments.plan import MODELS
from refinecal.experiments.vision.image_analysis import MODEL_WORDS
from refinecal.experiments.vision.networks import (
    NETWORKS,
    flops,
    n_parameters,
    new_network,
    resnet18,
    small_resnet,
    wide_resnet,
)


def on_meta(make, *sizes, **options):
    """A network of shapes without numbers."""
    with torch.device("meta"):
        return make(*sizes, **options)


def batch_norm(inputs):
    return 2 * inputs  # a factor and a summand


def block(inputs, outputs, stride=1):
    """Parameters of a ResNet's block."""
    convs = 9 * inputs * outputs + 9 * outputs * outputs + 2 * batch_norm(outputs)
    changes = stride != 1 or inputs != outputs
    return convs + changes * (inputs * outputs + batch_norm(outputs))


# ---- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "channels"), [(10, 3), (100, 3), (10, 1)])
def test_parameters_of_resnet18(n_classes, channels):
    expected = 9 * channels * 64 + batch_norm(64) + 512 * n_classes + n_classes
    for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
        expected += block(inputs, outputs) + block(outputs, outputs)
    assert n_parameters(on_meta(resnet18, n_classes, channels)) == expected


@pytest.mark.parametrize(("depth", "width"), [(28, 10), (16, 8), (10, 1)])
def test_parameters_of_wide_resnets(depth, width):
    blocks, widths = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
    expected = 9 * 3 * 16 + batch_norm(widths[-1]) + widths[-1] * 10 + 10
    for number in range(3):
        a, b = widths[number : number + 2]
        expected += batch_norm(a) + 9 * a * b + batch_norm(b) + 9 * b * b
        expected += a * b * (a != b or number > 0)  # the shortcut
        expected += (blocks - 1) * (2 * batch_norm(b) + 18 * b * b)
    assert n_parameters(on_meta(wide_resnet, 10, 3, depth, width)) == expected


def test_published_sizes():
    assert f"{n_parameters(on_meta(resnet18)) / 1e6:.2f}" == "11.17"
    assert f"{n_parameters(on_meta(wide_resnet)) / 1e6:.1f}" == "36.5"


def test_the_medium_network_has_twice_the_width():
    medium, small = (on_meta(NETWORKS[name], 10, 3) for name in ("medium", "small"))
    assert n_parameters(medium) == n_parameters(on_meta(small_resnet, 10, 3, width=32)) == 308_650
    assert [p.ndim for p in medium.parameters()] == [p.ndim for p in small.parameters()]
    assert set(NETWORKS) == set(MODELS) == set(MODEL_WORDS)


@pytest.mark.parametrize(("width", "blocks"), [(16, 1), (8, 3)])
def test_parameters_of_the_small_network(width, blocks):
    expected = 9 * 3 * width + batch_norm(width) + 4 * width * 10 + 10
    for inputs, outputs, stride in ((1, 1, 1), (1, 2, 2), (2, 4, 2)):
        expected += block(inputs * width, outputs * width, stride)
        expected += (blocks - 1) * block(outputs * width, outputs * width)
    assert n_parameters(on_meta(small_resnet, 10, 3, width, blocks)) == expected


def test_frozen_numbers_are_not_learned():
    net = nn.Linear(3, 2)
    net.bias.requires_grad = False
    assert n_parameters(net) == 6


# ---- forward and back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("n_classes", "channels", "side"), [(10, 3, 32), (100, 3, 32), (10, 1, 28)]
)
def test_any_size_of_image(name, n_classes, channels, side):
    images = torch.empty((2, channels, side, side), device="meta")
    assert on_meta(NETWORKS[name], n_classes, channels)(images).shape == (2, n_classes)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_gets_a_gradient(name):
    net = new_network(name, 10, 3, seed=0)
    side = 8 if name == "wrn28-10" else 16
    logits = net(torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(1)))
    cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert all((gradient != 0).any() for gradient in gradients)


def test_a_resnet_by_hand():
    """The same numbers from the formulas of He et al., in evaluation mode."""
    net = small_resnet(10, 3, width=4).eval()
    with torch.no_grad():
        for buffer in net.buffers():  # statistics that are not 0 and 1
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(0))
    weights = iter(list(net.parameters()))
    moments = iter([b for b in net.buffers() if b.is_floating_point()])

    def step(x, stride, padding):  # a convolution and its batch norm
        x = conv2d(x, next(weights), stride=stride, padding=padding)
        factor, summand, mean, variance = (
            v.view(-1, 1, 1) for v in (next(weights), next(weights), next(moments), next(moments))
        )
        return (x - mean) / (variance + 1e-5).sqrt() * factor + summand

    x = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = net(x)
        x = relu(step(x, 2, 1))
        for stride in (1, 2, 2):
            inner = step(relu(step(x, stride, 1)), 1, 1)
            x = relu(inner + (x if stride == 1 else step(x, stride, 0)))
        expected = x.mean(dim=(2, 3)) @ next(weights).T + next(weights)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_wide_block_adds_to_its_input():
    """With its last convolutions at zero, a stage without change of shape hands on what it was given."""
    net = wide_resnet(10, 3, depth=10, width=1).eval()
    block = net[1][0][0]
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        block.convs[-1].weight.zero_()
        assert torch.equal(block(x), x)


def test_dropout_acts_in_training_only():
    net = new_network("wrn28-10", 10, 3, seed=0)
    drops = [module for module in net.modules() if isinstance(module, nn.Dropout)]
    assert [module.p for module in drops] == [0.3] * 12  # one for each block
    block, x = net[1][0][1], torch.randn(1, 160, 4, 4)
    with torch.no_grad():
        assert not torch.equal(block(x), block(x))
        block.eval()
        assert torch.equal(block(x), block(x))


def test_he_normal_weights():
    net = new_network("wrn28-10", 10, 3, seed=0)
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 1e5:
            expected = (2 / (module.kernel_size[0] ** 2 * module.out_channels)) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=0.02)


# ---- seeds ------------------------------------------------------------------------------------------------


def state(net):
    return torch.cat([v.flatten().double() for v in chain(net.parameters(), net.buffers())])


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(123)
    stream = torch.get_rng_state()
    one = new_network("small", 10, 3, seed=5)
    assert torch.equal(torch.get_rng_state(), stream)
    torch.rand(7)
    assert torch.equal(state(one), state(new_network("small", 10, 3, seed=5)))
    assert not torch.equal(state(one), state(new_network("small", 10, 3, seed=6)))


def test_on_the_cpu_whatever_the_default():
    with torch.device("meta"):
        net = new_network("small", 10, 3, seed=5)
    assert torch.equal(state(net), state(new_network("small", 10, 3, seed=5)))


# ---- operations -------------------------------------------------------------------------------------------


def by_hooks(net, shape):
    """Multiply and add, twice for each weight and place of its output."""
    total = 0

    def count(module, _, output):
        nonlocal total
        total += 2 * module.weight.numel() * (output.numel() // output.shape[1])

    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    net(torch.empty((1, *shape), device="meta"))
    return total


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_operations_against_a_count_of_our_own(name, shape):
    net = on_meta(NETWORKS[name], 10, shape[0]).eval()
    assert flops(net, shape) == by_hooks(net, shape)


def test_known_operations():
    assert flops(on_meta(resnet18), (3, 32, 32)) / 2e9 == pytest.approx(0.56, abs=0.005)
    assert flops(on_meta(wide_resnet), (3, 32, 32)) / 2e9 == pytest.approx(5.2, abs=0.05)


def test_a_training_step_is_three_times_forward():
    net, images = on_meta(resnet18), torch.empty((8, 3, 32, 32), device="meta")
    with FlopCounterMode(display=False) as counter:
        net(images).sum().backward()
    of_the_stem = 2 * 8 * 9 * 3 * 64 * 32 * 32  # whose gradient by the image is not taken
    assert counter.get_total_flops() == 3 * 8 * flops(net, (3, 32, 32)) - of_the_stem


def test_counting_leaves_the_network_alone():
    net = new_network("small", 10, 3, seed=0).train()
    net[1].eval()
    before, modes = state(net), [module.training for module in net.modules()]
    flops(net, (3, 32, 32))
    assert torch.equal(state(net), before)
    assert [module.training for module in net.modules()] == modes


def test_shapes_alone_suffice_for_foreign_networks():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.ones(3, 1, 1), persistent=False)
            self.last = nn.Linear(12, 2)

        def forward(self, x):
            return self.last((x + self.shift).flatten(1))

    assert flops(Shifted(), (3, 2, 2)) == 2 * 12 * 2


# ---- memory and precision ---------------------------------------------------------------------------------


def test_the_order_in_memory_changes_nothing():
    net = new_network("small", 10, 3, seed=0).eval().double()
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = net(x)
    found = net.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_weights_can_be_replaced():
    """State dictionaries of one network fit another."""
    one, other = (new_network("small", 10, 3, seed=seed) for seed in (0, 1))
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(other.eval()(x), functional_call(one.eval(), one.state_dict(), (x,)))


# ---- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: new_network("small", 0, 3, 0), "n_classes is 0: it must be at least 1"),
        (lambda: wide_resnet(depth=27), r"depth is 27: it must be 6 b \+ 4 .*: 10, 16, 22, 28"),
        (lambda: wide_resnet(depth=4), "depth is 4"),
        (lambda: wide_resnet(dropout=1.0), "dropout is 1.0: it must be at least 0 and below 1"),
        (
            lambda: new_network("wrn-28-10", 10, 3, 0),
            "name is 'wrn-28-10'.* Did you mean 'wrn28-10'",
        ),
        (
            lambda: new_network("small", 10, 3, -1),
            "seed is -1: it must be at least 0",
        ),
        (
            lambda: flops(nn.Flatten(), (32, 32)),
            r"shape is \(32, 32\): .*\(channels, height, width\)",
        ),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()
