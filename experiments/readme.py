"""The numbers of the README, written there by the programs that have measured them."""

from pathlib import Path

from gconv_jax.training.runs import write_whole

README = Path(__file__).parents[1] / "README.md"


def fill(part: str, text: str, path: Path = README) -> None:
    """Puts text in the place of a part, which lies between `<!-- part -->` and `<!-- /part -->`."""
    begin, end = f"<!-- {part} -->\n", f"\n<!-- /{part} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} must have a line {begin.strip()}, and {end.strip()} after it.")
    write_whole(path, f"{before}{begin}{text}{end}{after}")
