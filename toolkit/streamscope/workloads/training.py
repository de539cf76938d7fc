"""Parts of training steps: a loss of classes, and optimizers that update weights in place, with PyTorch's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamscope.ops import add, equal, log_softmax, power, where
from streamscope.ops.one_line import elementwise
from streamscope.program.symbol import Symbol

LOSS_SCALE = 1024.0
"""Factor on a loss whose backward pass is in half, where smaller gradients become 0. A power of two, so that it rounds nothing."""

_towards = elementwise("y = old + share * (scale * given - old)", name="moving_average")
_velocity = elementwise("y = momentum * old + (scale * given + decay * w)", name="momentum")
_descent = elementwise("y = w - rate * velocity", name="sgd")
_second = elementwise("y = kept * old + (1 - kept) * (scale * given) * (scale * given)", name="second_moment")
_adamw = elementwise("y = w * (1 - rate * decay) - rate / first_bias * first / (sqrt(second) / sqrt(second_bias) + eps)", name="adamw")


def cross_entropy(scores: Symbol, labels: Symbol, classes: Symbol) -> Symbol:
    """Return the mean of ``-log(softmax(scores)[label])`` over the rows of scores, which end with an axis of classes.

    Parameters
    ----------
    scores : variable
        Shape (..., C), in half or wider; the loss of half is float32.
    labels : variable
        Shape (...), of whole numbers.
    classes : variable
        The numbers from 0 to C - 1, with which labels are compared.
    """
    logs = log_softmax(scores.astype("float32") if scores.dtype == "float16" else scores)
    of_labels = where(equal(labels.reshape(*labels.shape, 1), classes), logs, 0)
    return -of_labels.sum() / labels.size


def move_towards(average: Symbol, given: Symbol, share: float, scale: float = 1.0) -> None:
    """Update a moving average: a share of it becomes ``scale * given``."""
    _towards(average, share, scale, given, out=average)


@dataclass(frozen=True)
class Sgd:
    """Gradient descent with momentum and weight decay, as ``torch.optim.SGD``."""

    rate: float = 0.01
    momentum: float = 0.9
    decay: float = 1e-4

    def update(
        self, weights: Mapping[str, Symbol], gradients: Mapping[str, Symbol], velocities: Mapping[str, Symbol], scale: float
    ) -> None:
        """Update weights and velocities in place; ``scale`` is a factor on the gradients."""
        for name, gradient in gradients.items():
            w, velocity = weights[name], velocities[name]
            _velocity(self.momentum, velocity, scale, gradient, self.decay, w, out=velocity)
            _descent(w, self.rate, velocity, out=w)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, as ``torch.optim.AdamW``."""

    rate: float = 1e-3
    first: float = 0.9
    second: float = 0.999
    decay: float = 0.01
    eps: float = 1e-8

    def update(
        self,
        weights: Mapping[str, Symbol],
        gradients: Mapping[str, Symbol],
        moments: Mapping[str, tuple[Symbol, Symbol]],
        step: Symbol,
        scale: float,
    ) -> None:
        """Update weights, their two moments and the number of steps in place; ``scale`` is a factor on the gradients."""
        add(step, 1, out=step)
        biases = [1 - power(kept, step) for kept in (self.first, self.second)]
        for name, gradient in gradients.items():
            w, (first, second) = weights[name], moments[name]
            move_towards(first, gradient, 1 - self.first, scale)
            _second(self.second, second, scale, gradient, out=second)
            _adamw(w, self.rate, self.decay, biases[0], first, second, biases[1], self.eps, out=w)
