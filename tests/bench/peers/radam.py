"""RAdam (arXiv 1908.03265) as in the experiments of "Transformers are RNNs", and clipping of each gradient tensor."""

import math

import torch
from torch import Tensor


def clip_per_tensor(parameters: list[Tensor], max_norm: float) -> None:
    """Scales each gradient to a Euclidean norm of at most max_norm: g *= min(1, max_norm / (|g| + 1e-6))."""
    gradients = [p.grad for p in parameters]
    factors = torch._foreach_norm(gradients)
    torch._foreach_add_(factors, 1e-6)
    torch._foreach_reciprocal_(factors)
    torch._foreach_mul_(factors, max_norm)
    torch._foreach_clamp_max_(factors, 1.0)
    torch._foreach_mul_(gradients, factors)


class RAdam:
    """An optimizer that computes m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p *= 1 - lr wd (decoupled weight decay).

    Then it updates p by one of two rules. With

    rho_inf = 2 / (1 - b2) - 1 and rho_t = rho_inf - 2 t b2^t / (1 - b2^t), they are
    - if rho_t >= 5: p -= lr r_t / (1 - b1^t) m / (sqrt(v) + eps), where v is not bias-corrected and
      r_t = sqrt((1 - b2^t) (rho_t - 4) / (rho_inf - 4) (rho_t - 2) / rho_t rho_inf / (rho_inf - 2));
    - else: p -= lr / (1 - b1^t) m.
    """

    def __init__(self, parameters, lr: float, betas=(0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0):
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.steps = 0

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def step_size(self) -> tuple[float, bool]:
        """Returns the factor of lr in this step, and whether the step is rectified (divided by sqrt(v) + eps)."""
        beta1, beta2 = self.betas
        t = self.steps
        power = beta2**t
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * power / (1 - power)
        if rho < 5:
            return 1 / (1 - beta1**t), False
        ratio = (rho - 4) / (rho_inf - 4) * (rho - 2) / rho * rho_inf / (rho_inf - 2)
        return math.sqrt((1 - power) * ratio) / (1 - beta1**t), True

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        beta1, beta2 = self.betas
        gradients = [p.grad for p in self.parameters]
        torch._foreach_lerp_(self.first, gradients, 1 - beta1)
        torch._foreach_mul_(self.second, beta2)
        torch._foreach_addcmul_(self.second, gradients, gradients, 1 - beta2)
        if self.weight_decay:
            torch._foreach_mul_(self.parameters, 1 - self.lr * self.weight_decay)
        factor, rectified = self.step_size()
        if rectified:
            denominators = torch._foreach_sqrt(self.second)
            torch._foreach_add_(denominators, self.eps)
            torch._foreach_addcdiv_(self.parameters, self.first, denominators, -self.lr * factor)
        else:
            torch._foreach_add_(self.parameters, self.first, alpha=-self.lr * factor)
