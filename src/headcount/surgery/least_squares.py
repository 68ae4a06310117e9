"""Least squares with a ridge, from sums that are added up batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor


class LeastSquares:
    """The linear map of values that comes closest to what is missing.

    The sums are kept in float64, so that the number of batches does not matter.

    Args:
        constant: the map may add a constant too, which costs no ridge.
    """

    def __init__(self, constant: bool) -> None:
        self.constant = constant
        self.count = 0
        self.values = self.missing = self.squares = self.products = torch.zeros(
            (), dtype=torch.float64
        )

    def add(self, values: Tensor, missing: Tensor) -> None:
        """Take in a batch.

        Args:
            values: a row per place.
            missing: what the map should give there, a row per place.
        """
        values, missing = values.cpu().double(), missing.cpu().double()  # not all devices have it
        self.count += len(values)
        self.values = self.values.to(values) + values.sum(0)
        self.missing = self.missing.to(values) + missing.sum(0)
        self.squares = self.squares.to(values) + values.T @ values
        self.products = self.products.to(values) + values.T @ missing

    def solve(self, ridge: float) -> tuple[Tensor, Tensor]:
        """The map, a row per output, and the constant.

        Args:
            ridge: the penalty on the map, in units of the mean square of the values.
        """
        squares, products = self.squares, self.products
        if self.constant:  # of the deviations from the mean
            squares = squares - torch.outer(self.values, self.values) / self.count
            products = products - torch.outer(self.values, self.missing) / self.count
        if not len(squares):  # no values: the constant alone
            return products.T, self.missing / self.count
        penalty = ridge * squares.diagonal().mean() + torch.finfo(squares.dtype).tiny
        identity = torch.eye(len(squares), dtype=squares.dtype, device=squares.device)
        found = torch.linalg.solve(squares + penalty * identity, products).T
        return found, (self.missing - found @ self.values) / self.count
