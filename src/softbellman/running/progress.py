"""Progress reporters: a terminal bar, plain lines, or silence."""

import contextlib
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LINE_INTERVAL = 30.0  # seconds between plain lines
PACE_INTERVAL = 10.0  # seconds that the pace of a bar is of: groups tell now and then, one by one
FEW_RUNS = 3  # of so many each score is told


class Reporter:
    """Listener to the progress of training, which says nothing but notes; the base of those that say more."""

    def steps(self, done: int) -> None:
        """Takes the agent steps done so far; called after each of them, or now and then."""

    def score(self, label: str, epoch: int, mean: float, games: int) -> None:
        """Takes the mean score of a run's test phase and the games behind it."""

    def over(self, runs: int, text: str, spared: int) -> None:
        """Takes how many runs of a comparison are over, what became of the last, and the agent steps spared."""

    def note(self, text: str) -> None:
        """Says what a user should know, on standard error, also where all else is quiet."""
        with contextlib.suppress(OSError):
            print(f"softbellman: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the report."""


def reporter(total_steps: int, num_runs: int, *, quiet: bool, console: Console | None = None) -> Reporter:
    """Returns the reporter that fits: a bar where standard output is a terminal, else plain lines.

    The scores of a few runs are told one by one, of more the last alone.

    Args:
        total_steps: agent steps of all runs together.
        num_runs: how many runs there are.
        quiet: says nothing but notes.
        console: where to.
    """
    console = console or Console()
    if quiet:
        return Reporter()
    return (_Bar if console.is_terminal else _Lines)(console, _Pace(total_steps), num_runs)


class _Pace:
    """Agent steps per second, over all runs, and the time that is left at that pace.

    The pace is of the last interval, since random steps before replay starts are faster than those that learn; the
    clock starts after the first step, which waits for compilation.
    """

    def __init__(self, total_steps: int) -> None:
        self._asked, self.spared = total_steps, 0
        self._since: float | None = None
        self._steps, self.per_second = 0, 0.0

    @property
    def total(self) -> int:
        """Agent steps that there will have been in the end."""
        return self._asked - self.spared

    def measured(self, done: int, interval: float) -> bool:
        """Measures anew if `interval` seconds have passed, and says whether they had."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._steps = now, done
        if now - self._since < interval:
            return False
        self.per_second = max(0, done - self._steps) / (now - self._since)
        self._since, self._steps = now, done
        return True

    def left(self, done: int) -> str:
        """Returns the time left as h:mm:ss, or a dash before the first measurement."""
        if not self.per_second:
            return "-"
        minutes, seconds = divmod(int((self.total - done) / self.per_second), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


class _Bar(Reporter):
    """A bar with pace, time left and last score; what is worth keeping is printed above it."""

    def __init__(self, console: Console, pace: _Pace, num_runs: int) -> None:
        self._pace, self._runs, self._score, self._done, self._over = pace, num_runs, "no test yet", 0, 0
        self._bar = Progress(
            TextColumn("{task.fields[where]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[pace]}"),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("train", total=pace.total, pace="", where=self._where())
        self._bar.start()

    def steps(self, done: int) -> None:
        """Moves the bar."""
        self._done = done
        self._pace.measured(done, PACE_INTERVAL)
        self._show()

    def score(self, label: str, epoch: int, mean: float, games: int) -> None:
        """Keeps the score, and of a few runs prints it above the bar."""
        self._score = f"score {mean:.1f}"
        if self._runs <= FEW_RUNS:
            self._print(_scored(label, epoch, mean, games))

    def over(self, runs: int, text: str, spared: int) -> None:
        """Counts the run, and prints how it ended above the bar."""
        self._over, self._pace.spared = runs, spared
        self._print(text)
        self._show()

    def note(self, text: str) -> None:
        """Prints it above the bar."""
        self._print(f"note: {text}")

    def close(self) -> None:
        """Stops the bar."""
        with contextlib.suppress(OSError):
            self._bar.stop()

    def _where(self) -> str:
        if self._runs == 1:
            return f"{self._done:,} / {self._pace.total:,} agent steps"
        return f"{self._over} / {self._runs} runs, {self._done / max(1, self._pace.total):.0%}"

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone, and training goes on until it hears of that
            self._bar.console.print(line, highlight=False, markup=False)

    def _show(self) -> None:
        pace = f"{self._pace.per_second:,.0f}/s, {self._pace.left(self._done)} left, {self._score}"
        self._bar.update(self._task, total=self._pace.total, completed=self._done, where=self._where(), pace=pace)


class _Lines(Reporter):
    """Plain lines: one in an interval, one for each score of a few runs, one for each run that has ended."""

    def __init__(self, console: Console, pace: _Pace, num_runs: int) -> None:
        self._pace, self._console, self._runs, self._score, self._over = pace, console, num_runs, "no test yet", 0

    def steps(self, done: int) -> None:
        """Prints a line each interval."""
        if self._pace.measured(done, LINE_INTERVAL):
            pace, where = self._pace, "" if self._runs == 1 else f"{self._over} of {self._runs} runs, "
            self._print(
                f"{where}{done:,} of {pace.total:,} agent steps, {pace.per_second:,.0f} steps/s, "
                f"{pace.left(done)} left, {self._score}"
            )

    def score(self, label: str, epoch: int, mean: float, games: int) -> None:
        """Keeps the score, and of a few runs prints it."""
        self._score = f"last score {mean:.2f}"
        if self._runs <= FEW_RUNS:
            self._print(_scored(label, epoch, mean, games))

    def over(self, runs: int, text: str, spared: int) -> None:
        """Counts the run, and prints how it ended."""
        self._over, self._pace.spared = runs, spared
        self._print(text)

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more, and training goes on
            print(line, file=self._console.file, flush=True)


def say(text: str) -> None:
    """Says a line beside the progress, on standard output."""
    with contextlib.suppress(OSError):  # nobody listens any more, and work goes on
        print(text, flush=True)


def _scored(label: str, epoch: int, mean: float, games: int) -> str:
    return f"{label}: test phase {epoch}, mean score {mean:.2f} over {games} game{'s' if games != 1 else ''}"
