"""escnn's side of the benchmark, in an environment of its own: `python peer.py keep|default`.

The same network: regular representations of C8, 3x3 filters, batch norm and ReLU, two poolings, two
1x1 layers, the maximum over orientations and places, a linear layer; AMSGrad.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
warnings.filterwarnings("ignore")
START = time.perf_counter()

import escnn  # noqa: E402
import torch  # noqa: E402
from escnn import gspaces, nn  # noqa: E402

IMPORT = time.perf_counter() - START

from experiments.allocator import keep_memory  # noqa: E402
from experiments.bench.contender import peak_memory, seconds, serve  # noqa: E402

PROGRAMS: dict[str, Any] = {}


class GroupAllCNN(torch.nn.Module):
    """The paper's network."""

    def __init__(self, widths: tuple[int, int], orientations: int) -> None:
        super().__init__()
        space = gspaces.rot2dOnR2(orientations)
        self.images = fields = nn.FieldType(space, 3 * [space.trivial_repr])
        layers: list[Any] = []
        for i in range(1, 10):
            width = widths[0] if i < 4 else widths[1]
            out = nn.FieldType(space, width * [space.regular_repr])
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


def make(
    name: str, *, kind: str, widths: tuple[int, int], batch: int, size: int = 32
) -> dict[str, float]:
    """Makes a program: `train` for a step of training, `eval` with its filters expanded once."""
    torch.manual_seed(0)
    start = time.perf_counter()
    network = GroupAllCNN(tuple(widths), 8)
    build = time.perf_counter() - start
    images = torch.randn(batch, 3, size, size)
    labels = torch.randint(10, (batch,))
    if kind == "eval":
        network.eval()

        def run() -> None:
            with torch.inference_mode():
                network(images)

    else:
        optimiser = torch.optim.Adam(network.parameters(), 1e-3, amsgrad=True)

        def run() -> None:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            optimiser.step()
            assert torch.isfinite(loss).item()

    PROGRAMS[name] = run
    start = time.perf_counter()
    run()
    return {"build": build, "compile": time.perf_counter() - start}


def layer(name: str, *, batch: int, size: int, channels: int, backward: bool) -> None:
    """Makes a program of one 3x3 convolution, forward or forward and backward."""
    layouts = (torch.contiguous_format, torch.channels_last)
    PROGRAMS[name] = [_layer(batch, size, channels, backward, layout) for layout in layouts]
    for run in PROGRAMS[name]:
        run()


def _layer(batch: int, size: int, channels: int, backward: bool, layout: Any) -> Any:
    x = torch.randn(batch, channels, size, size).to(memory_format=layout)
    kernel = torch.randn(channels, channels, 3, 3).to(memory_format=layout)
    dy = torch.randn_like(x)
    x.requires_grad_(backward)
    kernel.requires_grad_(backward)

    def run() -> None:
        x.grad = kernel.grad = None
        y = torch.nn.functional.conv2d(x, kernel, padding=1)
        if backward:
            y.backward(dy)

    return run


def answer(what: str, **options: Any) -> Any:
    """Does what it is asked for."""
    match what:
        case "make":
            return make(**options)
        case "layer":
            return layer(**options)
        case "time":
            program = PROGRAMS[options["name"]]
            return min(map(seconds, program)) if isinstance(program, list) else seconds(program)
        case "memory":
            return peak_memory()
        case "about":
            return {
                "import": IMPORT,
                "torch": torch.__version__,
                "escnn": escnn.__version__,
                "threads": torch.get_num_threads(),
            }
        case _:
            raise ValueError(f"what must be make, layer, time, memory or about, not {what!r}.")


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        assert keep_memory(), "there is no glibc to tell"
    serve(answer)
