"""The table of operators: of each its name, what builds it, its formula and where it comes from.

The specs, the command line's list, the gallery and the tests are made from it. The laws of an operator and the ranges
of its parameters stand beside its class; the table gives them.
"""

from collections.abc import Callable
from typing import NamedTuple

from softbellman.operators import conjugates, core, doubles, entropy, means, mellow, noise, orders
from softbellman.operators.core import Operator
from softbellman.operators.parameters import Range, ranges


class Entry(NamedTuple):
    """An operator of the table.

    Attributes:
        name: as in a spec.
        build: the function that builds it.
        cls: its class.
        example: the arguments of an example, as in a spec.
        formula: its value at `q` with m actions, in LaTeX; that of two sets of values has `q'` for the selector.
        source: who it is from.
        algorithm: the name of the deep Q-network that has it for its target, if there is one.
        more: other specs worth a line of their own, each with the name of its algorithm.
    """

    name: str
    build: Callable[..., Operator]
    cls: type[Operator]
    example: str
    formula: str
    source: str
    algorithm: str = ""
    more: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> str:
        """The example, as a spec."""
        return f"{self.name}({self.example})" if self.example else self.name

    @property
    def parameters(self) -> dict[str, Range]:
        """Its parameters by name."""
        return ranges(self.cls)


GROUPS: dict[str, tuple[Entry, ...]] = {
    "maximum, mean, and averages by rank": (
        Entry("max", core.maximum, core.Maximum, "", r"\max_a q_a", "Bellman (1957)", "DQN"),
        Entry("min", orders.minimum, orders.Minimum, "", r"\min_a q_a", ""),
        Entry("mean", core.mean, core.Mean, "", r"\frac1m \sum_a q_a", "", "expected SARSA"),
        Entry(
            "fixed", orders.fixed, orders.Fixed, "0.5, 0.3, 0.2", r"\sum_a \pi_a q_a", "van Seijen et al. (2009)",
            "expected SARSA",
        ),
        Entry(
            "epsilon_soft", orders.epsilon_soft, orders.EpsilonSoft, "0.1",
            r"(1-\varepsilon) \max_a q_a + \frac\varepsilon m \sum_a q_a", "Asadi and Littman (2017)",
        ),
        Entry(
            "smoothed", orders.smoothed, orders.Smoothed, "0.1",
            r"(1-\mu)\, q_{(1)} + \frac\mu{m-1} \sum_{i>1} q_{(i)}", "Barber (2023)",
        ),
        Entry("top_k", orders.top_k, orders.TopK, "2", r"\frac1k \sum_{i \le k} q_{(i)}", "Yager (1988)"),
        Entry(
            "tail", orders.tail, orders.Tail, "0.4", r"\max \{\langle p, q\rangle : p_a \le \tfrac1{s m}\}",
            "Rockafellar and Uryasev (2000)",
        ),
        Entry(
            "yager", orders.yager, orders.Yager, "0.3", r"\sum_i \left[(\tfrac im)^r - (\tfrac{i-1}m)^r\right] q_{(i)}",
            "Yager (1996)",
        ),
        Entry("owa", orders.owa, orders.Owa, "0.5, 0.1, 0.4", r"\sum_i w_i q_{(i)}", "Yager (1988)"),
        Entry(
            "quantile", orders.quantile, orders.Quantile, "0.75", r"q_{(m + 1 - \lceil p m \rceil)}",
            "Hyndman and Fan (1996)",
        ),
        Entry("median", orders.median, orders.Median, "", r"\mathrm{median}(q)", ""),
        Entry("hurwicz", orders.hurwicz, orders.Hurwicz, "0.8", r"a \max_a q_a + (1-a) \min_a q_a", "Hurwicz (1951)"),
    ),
    "without a unit": (
        Entry(
            "keep", entropy.keep, entropy.Keep, "0.1", r"\max \{\langle p, q\rangle : H(p) \ge \rho \log m\}", "new",
        ),
        Entry(
            "gini",
            entropy.gini,
            entropy.Gini,
            "0.1",
            r"\max \{\langle p, q\rangle : 1 - \sum_a p_a^2 \ge \rho (1 - \tfrac1m)\}",
            "Duchi and Namkoong (2019)",
        ),
        Entry(
            "expectile", means.expectile, means.Expectile, "0.9",
            r"\arg\min_v \sum_a |\kappa - [q_a < v]| (q_a - v)^2", "Newey and Powell (1987)",
        ),
        Entry(
            "power_mean", means.power_mean, means.PowerMean, "3",
            r"\min q + \left(\frac1m \sum_a (q_a - \min q)^p\right)^{1/p}", "Dam et al. (2019)",
        ),
        Entry(
            "p_norm", means.p_norm, means.PNorm, "3", r"\min q + \left(\sum_a (q_a - \min q)^p\right)^{1/p}", "",
        ),
        Entry(
            "lehmer", means.lehmer, means.Lehmer, "3",
            r"\min q + \frac{\sum_a (q_a - \min q)^p}{\sum_a (q_a - \min q)^{p-1}}", "Bullen (2003)",
        ),
        Entry(
            "signed_power", means.signed_power, means.SignedPower, "3",
            r"f^{-1}\left(\frac1m \sum_a f(q_a)\right),\ f(x) = \mathrm{sign}(x)|x|^p", "Kolmogorov (1930)",
        ),
        Entry(
            "deviation", means.deviation, means.Deviation, "0.5", r"\mathrm{mean}(q) + \kappa\, \mathrm{std}(q)",
            "Namkoong and Duchi (2017)",
        ),
        Entry(
            "relative", means.relative, means.Relative, "2", r"\mathrm{sm}_\tau(q),\ \tau = \kappa / \mathrm{std}(q)",
            "after the code of Song et al. (2019)",
        ),
    ),
    "with a unit": (
        Entry(
            "softmax", core.softmax, core.Softmax, "5", r"\sum_a p_a q_a,\ p \propto e^{\tau q}",
            "Song, Parr and Carin (2019)", "S-DQN",
        ),
        Entry(
            "mellowmax", core.mellowmax, core.Mellowmax, "5", r"\frac1\omega \log \frac1m \sum_a e^{\omega q_a}",
            "Asadi and Littman (2017)", "mellowmax DQN",
        ),
        Entry(
            "sm2", mellow.sm2, mellow.SoftMellowmax, "1, 5",
            r"\frac1\omega \log \sum_a p_a e^{\omega q_a},\ p \propto e^{\alpha q}", "Gan et al. (2021)",
        ),
        Entry(
            "weighted", noise.weighted, noise.Weighted, "1", r"\sum_a P(a \text{ is best}) q_a",
            "D'Eramo et al. (2016)",
        ),
        Entry(
            "kl_prior", mellow.kl_prior, mellow.Prior, "5, 0.5, 0.3, 0.2",
            r"\frac1\tau \log \sum_a \rho_a e^{\tau q_a}", "Fox et al. (2016)",
        ),
        Entry(
            "barrier", conjugates.barrier, conjugates.Barrier, "5",
            r"\max_p \langle p, q\rangle + \frac1{\tau m} \sum_a \log(m p_a)", "Grill et al. (2020)",
        ),
        Entry(
            "centred", conjugates.centred, conjugates.Centred, "sparsemax(5)", r"\mathrm{op}(q) - \mathrm{op}(0)",
            "Geist et al. (2019)",
        ),
    ),
    "soft maxima": (
        Entry(
            "logsumexp", conjugates.logsumexp, conjugates.LogSumExp, "5", r"\frac1\tau \log \sum_a e^{\tau q_a}",
            "Haarnoja et al. (2017)", "soft Q-learning",
        ),
        Entry(
            "general_mellowmax", mellow.general_mellowmax, mellow.GeneralMellowmax, "mean, 0.5, 2",
            r"\frac1\omega \log \sum_a d_a^\kappa e^{\omega q_a}", "Gan et al. (2021)",
        ),
        Entry(
            "sparsemax", conjugates.sparsemax, conjugates.Sparsemax, "5",
            r"\max_p \langle p, q\rangle + \frac1{2\tau} (1 - \sum_a p_a^2)", "Lee, Choi and Oh (2018)",
        ),
        Entry(
            "entmax", conjugates.entmax, conjugates.Entmax, "1.5, 5",
            r"\max_p \langle p, q\rangle + \frac{1 - \sum_a p_a^\alpha}{\tau \alpha (\alpha - 1)}", "Lee et al. (2020)",
        ),
        Entry(
            "perturbed", noise.perturbed, noise.Perturbed, "1", r"E \max_a (q_a + \sigma \varepsilon_a)",
            "Berthet et al. (2020)",
        ),
    ),
    "operators on two sets of values": (
        Entry(
            "double", doubles.double, doubles.Double, "max", r"\sum_a w_a(q') q_a", "van Hasselt et al. (2016)",
            "double DQN", (("double(softmax(5))", "S-DDQN"), ("double(mellowmax(5))", "double mellowmax")),
        ),
        Entry(
            "clipped_double", doubles.clipped_double, doubles.ClippedDouble, "max",
            r"\sum_a w_a(q') \min(q_a, q'_a)", "Fujimoto et al. (2018)", "clipped double DQN",
        ),
        Entry("maxmin", doubles.maxmin, doubles.Maxmin, "max", r"\mathrm{op}(\min(q, q'))", "Lan et al. (2020)"),
        Entry(
            "averaged", doubles.averaged, doubles.Averaged, "max", r"\mathrm{op}(\tfrac12 (q + q'))",
            "Anschel et al. (2017)",
        ),
        Entry(
            "self_correcting", doubles.self_correcting, doubles.SelfCorrecting, "3",
            r"q_a,\ a = \arg\max\, (1 - \beta) q + \beta q'", "Zhu and Rigotti (2021)", "self-correcting DQN",
        ),
        Entry(
            "weighted_double", doubles.weighted_double, doubles.WeightedDouble, "1",
            r"b q'_a + (1-b) q_a,\ a = \arg\max q',\ b = \tfrac{|q_a - q_l|}{c + |q_a - q_l|}",
            "Zhang et al. (2017)", "weighted double DQN",
        ),
    ),
}  # fmt: skip
"""Operators by group, in the order in which they are listed."""

TABLE: dict[str, Entry] = {entry.name: entry for group in GROUPS.values() for entry in group}
"""All of them by name."""
