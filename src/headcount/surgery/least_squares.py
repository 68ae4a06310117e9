"""Least squares with a ridge, from sums over batches."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from headcount.surgery.outputs import Output, not_finite

RIDGES = tuple(10.0**power for power in range(-4, 3))  # that cross-validation chooses from
SAME = 1e-12  # the variance of equal values in float32, as a share of their mean square, is below


class LeastSquares:
    """The linear map of values that comes closest to what is missing.

    Sums are in float64, so that the number of batches does not matter.

    Args:
        constant: the map may also add a constant, on which there is no penalty.
    """

    def __init__(self, constant: bool) -> None:
        self.constant = constant
        self.count = 0
        self.values = self.missing = self.squares = self.products = self.lost = torch.zeros(
            (), dtype=torch.float64
        )

    def add(self, values: Tensor, missing: Tensor) -> None:
        """Add a batch: values, and what the map should give for them, a row per position."""
        # Not all devices have float64.
        values, missing = values.cpu().double(), missing.cpu().double()
        if not self.count:
            rows, columns = values.shape[1], missing.shape[1]
            self.values, self.missing = values.new_zeros(rows), values.new_zeros(columns)
            self.squares = values.new_zeros(rows, rows)
            self.products = values.new_zeros(rows, columns)
        self.count += len(values)
        self.values += values.sum(0)
        self.missing += missing.sum(0)
        self.lost = self.lost + missing.square().sum()
        self.squares.addmm_(values.T, values)
        self.products.addmm_(values.T, missing)

    def refuse_overflow(self, output: Output) -> None:
        """Refuse sums in which a number was too large for the model's type."""
        if not self.is_finite:
            raise not_finite(output, "fitted")

    @property
    def is_finite(self) -> bool:
        """Whether no number was too large for the model's type."""
        return bool(self.squares.isfinite().all() and self.products.isfinite().all())

    def solve(self, ridge: float) -> tuple[Tensor, Tensor]:
        """The map, a row per output, and the constant.

        Args:
            ridge: the penalty on the map, in units of the mean square of the values; infinite for
                none but a constant.
        """
        squares, products, _ = self._deviations()
        if not len(squares) or math.isinf(ridge):  # the constant alone
            return torch.zeros_like(products.T), self.missing / self.count
        penalty = ridge * squares.diagonal().mean() + torch.finfo(squares.dtype).tiny
        identity = torch.eye(len(squares), dtype=squares.dtype, device=squares.device)
        found = torch.linalg.solve(squares + penalty * identity, products).T
        return found, (self.missing - found @ self.values) / self.count

    def best_ridge(self) -> float:
        """The ridge by generalised cross-validation (Golub, Heath and Wahba 1979).

        Use it where each row is an example of its own: rows may be hardly more than values then,
        and a small ridge would learn them by heart. It is infinite if a constant alone is better,
        and if the values are the same in all rows, except for rounding.
        """
        squares, products, lost = self._deviations()
        size, count = float(squares.diagonal().mean()), self.count - self.constant
        if not (count and size > SAME * float(self.squares.diagonal().mean())):
            return math.inf
        eigenvalues, vectors = torch.linalg.eigh(squares)
        along = (vectors.T @ products).square().sum(1)
        error = partial(_left_out, eigenvalues.clamp(min=0.0), along, lost, count)
        return min((math.inf, *RIDGES), key=lambda ridge: error(ridge * size))

    def _deviations(self) -> tuple[Tensor, Tensor, float]:
        """The sums of squares, of products and of missing squares; from the mean if it is free."""
        if not self.constant:
            return self.squares, self.products, float(self.lost)
        return (
            self.squares - torch.outer(self.values, self.values) / self.count,
            self.products - torch.outer(self.values, self.missing) / self.count,
            float(self.lost - self.missing.square().sum() / self.count),
        )


def _left_out(eigenvalues: Tensor, along: Tensor, lost: float, count: int, penalty: float) -> float:
    """The squared error that is expected of a row which the map was not fitted on.

    Args:
        eigenvalues: of the sum of the values' squares.
        along: the square of the products along each eigenvector.
        lost: the sum of the squares of what is missing.
        count: rows that are free to differ from the constant.
        penalty: on the map; infinite for no map.
    """
    if math.isinf(penalty):
        return lost / count
    shrunk = eigenvalues + penalty
    free = count - float((eigenvalues / shrunk).sum())
    if free <= 0:
        return math.inf
    explained = along * (2 / shrunk - eigenvalues / shrunk.square())
    return count * (lost - float(explained.sum())) / free**2
