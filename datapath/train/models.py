# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two small networks, and data for them that a seed makes: nothing is downloaded.

transformer: predicts the next of 64 tokens in sequences of a Markov chain; some 5 million
parameters.  convnet: tells 10 patterns apart beneath noise; some 0.3 million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

TOKENS, CONTEXT, WIDTH, LAYERS, HEADS = 64, 32, 256, 6, 8
CLASSES, SIDE = 10, 16
_NOISE = 1.5
_TEST_SEED = 1_000_003


class Task(Protocol):
    """A network with its data."""

    model: nn.Module

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and what the network should say."""
        ...

    def loss(self, said: Tensor, wanted: Tensor) -> Tensor: ...


def make(name: str, seed: int) -> Task:
    """The same weights and the same data on every rank; name: transformer or convnet."""
    torch.manual_seed(seed)
    return Sequences(seed) if name == "transformer" else Pictures(seed)


def accuracy(task: Task, batches: int = 4, size: int = 128) -> float:
    """The share of right answers on data that no rank was trained with."""
    generator = torch.Generator().manual_seed(_TEST_SEED)
    right = total = 0
    with torch.no_grad():
        for _ in range(batches):
            inputs, wanted = task.batch(generator, size)
            right += int((task.model(inputs).argmax(-1) == wanted).sum())
            total += wanted.numel()
    return right / total


class Transformer(nn.Module):
    """A decoder in the usual form: attention to earlier tokens, norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, TOKENS)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places
        out: Tensor = self.out(self.layers(hidden, mask=self.mask, is_causal=True))
        return out


@dataclass
class Sequences:
    """Each token has four successors, of unequal probability."""

    seed: int

    def __post_init__(self) -> None:
        self.model: nn.Module = Transformer()
        generator = torch.Generator().manual_seed(self.seed + 1)
        order = torch.rand(TOKENS, TOKENS, generator=generator).argsort(1)
        self._chain = torch.zeros(TOKENS, TOKENS)
        self._chain.scatter_(1, order[:, :4], torch.tensor([0.7, 0.15, 0.1, 0.05]).repeat(64, 1))

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        rows = [torch.randint(TOKENS, (size,), generator=generator)]
        for _ in range(CONTEXT):
            rows.append(torch.multinomial(self._chain[rows[-1]], 1, generator=generator)[:, 0])
        all_ = torch.stack(rows, 1)
        return all_[:, :-1], all_[:, 1:]

    def loss(self, said: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(said.reshape(-1, TOKENS), wanted.reshape(-1))


@dataclass
class Pictures:
    """Patterns of one colour, each beneath noise of its own."""

    seed: int

    def __post_init__(self) -> None:
        self.model: nn.Module = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * (SIDE // 4) ** 2, 256), nn.ReLU()),
            nn.Linear(256, CLASSES),
        )
        generator = torch.Generator().manual_seed(self.seed + 1)
        self._patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=generator)

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        wanted = torch.randint(CLASSES, (size,), generator=generator)
        noise = torch.randn(size, 1, SIDE, SIDE, generator=generator)
        return self._patterns[wanted] + _NOISE * noise, wanted

    def loss(self, said: Tensor, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(said, wanted)
