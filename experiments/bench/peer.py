"""escnn's side of the benchmark, in an environment of its own; see `contender`.

The same network: regular representations of C8, 3x3 filters, batch norm and ReLU, two poolings, two
1x1 layers, the maximum over orientations and places, a linear layer; AMSGrad.
"""

import time
import warnings

warnings.filterwarnings("ignore")
_START = time.perf_counter()

import escnn  # noqa: E402
import torch  # noqa: E402
from escnn import gspaces, nn  # noqa: E402

_IMPORTED = time.perf_counter() - _START

from typing import Any  # noqa: E402

from experiments.bench.contender import Program, serve  # noqa: E402


class GroupAllCNN(torch.nn.Module):
    """The paper's network."""

    def __init__(self, widths: list[int]) -> None:
        """Makes it for 8 orientations and 10 classes."""
        super().__init__()
        space = gspaces.rot2dOnR2(8)
        self.images = fields = nn.FieldType(space, 3 * [space.trivial_repr])
        layers: list[Any] = []
        for i in range(1, 10):
            out = nn.FieldType(space, widths[i > 3] * [space.regular_repr])
            k = 3 if i < 8 else 1
            layers += [
                nn.R2Conv(fields, out, k, padding=k // 2, bias=False),
                nn.InnerBatchNorm(out),
                nn.ReLU(out),
            ]
            if i in (3, 6):
                layers.append(nn.PointwiseMaxPool2D(out, 2))
            fields = out
        layers.append(nn.GroupPooling(fields))
        self.convs = nn.SequentialModule(*layers)
        self.head = torch.nn.Linear(widths[1], 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps images `[B, 3, H, W]` to logits."""
        maps = self.convs(nn.GeometricTensor(images, self.images)).tensor
        return self.head(maps.amax((2, 3)))


def _build(widths: list[int]) -> tuple[GroupAllCNN, dict[str, Any]]:
    torch.manual_seed(0)
    start = time.perf_counter()
    network = GroupAllCNN(widths)
    return network, {
        "import": _IMPORTED,
        "build": time.perf_counter() - start,
        "parameters": sum(p.numel() for p in network.parameters()),
        "torch": torch.__version__,
        "escnn": escnn.__version__,
        "threads": torch.get_num_threads(),
    }


def training(*, widths: list[int], batch: int) -> Program:
    """Makes a step of training: loss, gradients, AMSGrad."""
    network, facts = _build(widths)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    optimiser = torch.optim.Adam(network.parameters(), 1e-3, amsgrad=True)

    def run() -> float:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()
        return loss.item()

    facts["loss"] = run()
    return run, facts


def evaluation(*, widths: list[int], batch: int) -> Program:
    """Makes the network with its filters expanded once, which is what `eval` does in escnn."""
    network, facts = _build(widths)
    network.eval()
    images = torch.randn(batch, 3, 32, 32)

    def run() -> None:
        with torch.inference_mode():
            network(images)

    run()
    return run, facts


def layer(*, batch: int, size: int, channels: int, backward: bool, layout: str) -> Program:
    """Makes one 3x3 convolution, forward or forward and backward."""
    order = getattr(torch, layout)
    x = torch.randn(batch, channels, size, size).to(memory_format=order).requires_grad_(backward)
    kernel = torch.randn(channels, channels, 3, 3).to(memory_format=order).requires_grad_(backward)
    dy = torch.randn(batch, channels, size, size).to(memory_format=order)

    def run() -> None:
        x.grad = kernel.grad = None
        y = torch.nn.functional.conv2d(x, kernel, padding=1)
        if backward:
            y.backward(dy)

    run()
    return run, {}


if __name__ == "__main__":
    serve({"training": training, "evaluation": evaluation, "layer": layer})
