"""A sixth set of models for torch_graphs.py: convolution networks of other kinds; none was tuned for."""
import torch
import torch.nn.functional as F
from torch import nn

# The columns of a model: name, kind, shape of a row, number of different ids.
COLUMNS = {
    "squeeze_excite": [("image", "number", [3, 32, 32], 0)],
    "bilinear_unet": [("image", "number", [3, 32, 32], 0)],
}
YES_NO = ()
CLASSES = 10
DROP = 0.1  # of blocks in training; --no-dropout makes it 0


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Block(nn.Module):
    """Convolutions with squeeze and excitation beside a way around them, which some images of a batch take alone."""

    def __init__(self, inputs, outputs, stride, drop):
        super().__init__()
        self.drop = drop
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU(),
                                  nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), SqueezeExcite(outputs))
        self.around = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.AvgPool2d(stride) if stride > 1 else nn.Identity(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.body(x)
        if self.drop:
            y = y * F.dropout(torch.ones_like(y[:, :1, :1, :1]), self.drop, self.training)
        return F.silu(y + self.around(x))


class SqueezeExciteNet(nn.Module):
    """Residual blocks with squeeze and excitation and stochastic depth."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 48, 3, 1, 1, bias=False), nn.BatchNorm2d(48), nn.SiLU(), nn.MaxPool2d(2))
        sizes = [(48, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 192, 2)]
        self.blocks = nn.Sequential(*[Block(*size, DROP * (i + 1) / len(sizes)) for i, size in enumerate(sizes)])
        self.out = nn.Linear(192, CLASSES)

    def forward(self, image):
        return self.out(self.blocks(self.first(image)).mean((2, 3)))


class Pair(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 2, dilation=2)
        self.norm = nn.InstanceNorm2d(outputs, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.second(F.leaky_relu(self.norm(self.first(x)), 0.1)), 0.1)


class BilinearUnet(nn.Module):
    """A U-Net with instance norm and dilated layers, whose way up is bilinear; a loss of what it makes of the image."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Pair(3, 40), Pair(40, 80), Pair(80, 160)])
        self.up = nn.ModuleList([Pair(160 + 80, 80), Pair(80 + 40, 40)])
        self.image, self.out = nn.Conv2d(40, 3, 3, 1, 1), nn.Linear(160, CLASSES)

    def forward(self, image):
        skips, x = [], image
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 3, 2, 1) if i else x)
            skips.append(x)
        pooled = x.mean((2, 3))
        for i, block in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = block(torch.cat([x, skips[1 - i]], 1))
        return self.out(pooled), F.smooth_l1_loss(torch.tanh(self.image(x)), image)


MODELS = {"squeeze_excite": SqueezeExciteNet, "bilinear_unet": BilinearUnet}
