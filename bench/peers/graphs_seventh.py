"""A seventh set of models for torch_graphs.py: images, series and volumes under convolutions; none was tuned for."""
import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "pyramid": [("image", "number", [3, 32, 32], 0)],
    "separable": [("dense", "number", [8, 256], 0)],
    "volumes": [("image", "number", [2, 16, 24, 24], 0)],
}
YES_NO = ()
CLASSES = 10


class Stage(nn.Module):
    """Depthwise 7 by 7, layer norm over channels, two convolutions of single places with GELU between."""

    def __init__(self, width):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.wide, self.back = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(3 * width, width, 1)

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.back(F.gelu(self.wide(y)))


class Pyramid(nn.Module):
    """Three scales of such blocks, added up from the coarsest by transposed convolutions; classes from all of them."""

    def __init__(self):
        super().__init__()
        widths = [64, 128, 192]
        self.first = nn.Conv2d(3, widths[0], 4, stride=2, padding=1)
        self.stages = nn.ModuleList([nn.Sequential(Stage(w), Stage(w)) for w in widths])
        self.down = nn.ModuleList([nn.Conv2d(a, b, 2, stride=2) for a, b in zip(widths, widths[1:])])
        self.side = nn.ModuleList([nn.Conv2d(w, 64, 1) for w in widths])
        self.up = nn.ModuleList([nn.ConvTranspose2d(64, 64, 2, stride=2) for _ in widths[1:]])
        self.smooth = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.GELU())
        self.out = nn.Linear(3 * 64, CLASSES)

    def forward(self, image):
        x, scales = self.first(image), []
        for i, stage in enumerate(self.stages):
            x = stage(self.down[i - 1](x) if i else x)
            scales.append(self.side[i](x))
        for i in (1, 0):
            scales[i] = scales[i] + self.up[i](scales[i + 1])
        return self.out(torch.cat([self.smooth(scales[0]).mean((2, 3)), scales[1].mean((2, 3)), scales[2].amax((2, 3))], 1))


class SeparableUnit(nn.Module):
    """Depthwise along time, then across channels with a gate; batch norm behind each."""

    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.deep = nn.Conv1d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False)
        self.first, self.second = nn.BatchNorm1d(inputs), nn.BatchNorm1d(outputs)
        self.wide = nn.Conv1d(inputs, 2 * outputs, 1)
        self.same = inputs == outputs and stride == 1

    def forward(self, x):
        a, b = self.wide(F.relu(self.first(self.deep(x)))).chunk(2, 1)
        y = self.second(a * torch.sigmoid(b))
        return x + y if self.same else y


class Separable(nn.Module):
    """A series under separable convolutions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(8, 64, 7, 2, 3)
        sizes = [(64, 64, 9, 1), (64, 64, 9, 1), (64, 128, 15, 2), (128, 128, 15, 1), (128, 192, 15, 2)]
        self.units = nn.Sequential(*[SeparableUnit(*size) for size in sizes])
        self.pool, self.out = nn.MaxPool1d(2), nn.Linear(2 * 192, CLASSES)

    def forward(self, dense):
        x = self.units(self.pool(F.elu(self.first(dense))))
        return self.out(torch.cat([x.mean(2), x.amax(2)], 1))


class Volumes(nn.Module):
    """Volumes down and up again: batch norm, skips that are joined, the way up by transposed convolutions."""

    def __init__(self):
        super().__init__()
        conv = lambda i, o, s: nn.Sequential(nn.Conv3d(i, o, 3, s, 1, bias=False), nn.BatchNorm3d(o), nn.LeakyReLU(0.1))
        self.down = nn.ModuleList([conv(2, 24, 1), conv(24, 48, 2), conv(48, 96, 2)])
        self.up = nn.ModuleList([nn.ConvTranspose3d(96, 48, 2, stride=2), nn.ConvTranspose3d(48, 24, 2, stride=2)])
        self.both = nn.ModuleList([conv(96, 48, 1), conv(48, 24, 1)])
        self.out = nn.Linear(24, CLASSES)

    def forward(self, image):
        skips, x = [], image
        for down in self.down:
            x = down(x)
            skips.append(x)
        for i, (up, both) in enumerate(zip(self.up, self.both)):
            x = both(torch.cat([up(x), skips[1 - i]], 1))
        return self.out(x.mean((2, 3, 4)))


MODELS = {"pyramid": Pyramid, "separable": Separable, "volumes": Volumes}
