"""Base class of methods that can train their item table with noise on its gradient."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import override

from fedrec.federation.model.client import Client, GaussianMechanism, Step
from fedrec.federation.model.method import Method
from fedrec.federation.privacy.accountant import gaussian_epsilon


class SupportsDP(Method):
    """A method with the settings `dp_noise`, `dp_clip` and `dp_delta`."""

    @property
    def mechanism(self) -> GaussianMechanism | None:
        """The noise on the gradient of the item table; None if the run sets no `dp_noise`."""
        multiplier = self.settings["dp_noise"]
        return GaussianMechanism(self.settings["dp_clip"], multiplier) if multiplier else None

    @override
    def step(
        self,
        client: Client,
        rates: Mapping[str, float],
        weight_decay: Mapping[str, float] | None = None,
        gradient_noise: Mapping[str, GaussianMechanism] | None = None,
    ) -> Step:
        mechanism = self.mechanism
        if mechanism is not None and self.item_table in rates:
            gradient_noise = {self.item_table: mechanism, **(gradient_noise or {})}
        return super().step(client, rates, weight_decay, gradient_noise)

    @override
    def privacy(self, samples: Tensor, rounds: int) -> dict[str, Any]:
        """Epsilon of the client that spends most, for protecting one sample of a client.

        The papers' accounting takes the client's private parameters as given. But these learn from the same
        samples without noise. Through them a sample can change every clipped gradient of the mini-batch, each
        by up to twice the clip.
        """
        if self.mechanism is None:
            return {}
        delta, noise, batch = (
            self.settings["dp_delta"],
            self.mechanism.multiplier,
            self.settings["batch_size"],
        )
        epochs = rounds * self.settings["local_epochs"]
        as_given, whole = 0.0, 0.0
        for size in samples.unique().tolist():
            steps, longest = epochs * math.ceil(size / batch), min(batch, size)
            as_given = max(as_given, gaussian_epsilon(noise, longest / size, steps, delta))
            whole = max(whole, gaussian_epsilon(noise / (2 * longest), 1.0, steps, delta))
        return {
            "gradients": {
                "mechanism": f"gaussian noise on the gradient of {self.item_table}, clipped sample by sample",
                "clip": self.mechanism.clip,
                "noise_multiplier": noise,
                "delta": delta,
                "epsilon": as_given,
                "epsilon_holds": "with what stays on clients taken as given; mini-batches as Poisson samples",
                "epsilon_through_the_client": whole,
            }
        }
