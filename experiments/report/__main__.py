"""The evidence on one page: results -> tables, figures and report.html.

    make report                                  # a few seconds, from the JSONs alone
    python -m experiments.report --preset smoke --out runs/report

Reads `experiments/results/evidence/<preset>/*.json`, one file a run. What has not been run yet is
said to be so; nothing else is needed, and a second time gives the same bytes.
"""

import dataclasses
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from experiments import readme
from experiments.presets import PresetName
from experiments.report import charts, page
from experiments.report.findings import ResultsError, Run, read
from experiments.report.pictures import pictures
from experiments.report.sentences import in_short, scale
from experiments.report.tables import markdown, tables
from experiments.tuning import tune
from gconv_jax.training.runs import write_whole

_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


@dataclasses.dataclass(frozen=True)
class Config:
    """Draws and writes everything from the results that are there."""

    preset: PresetName = "cpu"
    """which results: cpu, paper or smoke"""
    results: Path | None = None
    """folder of the results; by default experiments/results/evidence/<preset>"""
    out: Path = Path("experiments/results/report")
    """folder for report.html, tables.md and the pictures"""

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self.results or Path("experiments/results/evidence") / self.preset


def write(runs: Sequence[Run], out: Path) -> list[Path]:
    """Writes all pictures, tables.md and report.html; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    made, files = {}, []
    for picture in pictures(runs):
        drawn = {"png": charts.png(picture.figure), "svg": charts.svg(picture.figure)}
        for kind, content in drawn.items():
            files.append(out / f"{picture.name}.{kind}")
            write_whole(files[-1], content)
        made[picture.name] = page.embedded(picture, drawn["png" if picture.raster else "svg"])
    every = tables(runs)
    for name, text in {
        "tables.md": markdown(runs, list(every)) + "\n",
        "report.html": page.html(runs, every, made),
    }.items():
        files.append(out / name)
        write_whole(files[-1], text)
    return files


def in_readme(runs: Sequence[Run]) -> str:
    """What the README says: the claims, figure 3 and a few tables, in Markdown."""
    claims = [
        textwrap.fill(claim, 100, initial_indent="- ", subsequent_indent="  ", **_WORDS)
        for claim in in_short(runs)
    ]
    figure = "experiments/results/report/figure3.png"
    alt = "test error against the angle of the test images, all methods"
    return "\n\n".join(["\n".join(claims), f"![{alt}]({figure})", markdown(runs)])


def main(config: Config) -> int:
    runs = read(config.folder, config.preset)
    compared = [run for run in runs if not run.whole]
    print(f"{len(runs)} run{'s' * (len(runs) > 1)} in {config.folder}. {scale(compared)}")
    *_, report = write(runs, config.out)
    print(f"wrote {report}, with tables.md and the pictures beside it")
    if config == Config():
        readme.fill("evidence", in_readme(runs))
        print("and what the README says of them")
    return 0


def run() -> int:
    """Reads the command line; a bad file is a sentence, not a traceback."""
    tune()
    try:
        return main(tyro.cli(Config, prog="python -m experiments.report", description=__doc__))
    except ResultsError as error:
        for line in str(error).splitlines():
            print(f"report: {line}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
