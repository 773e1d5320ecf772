"""One page with everything on it, that needs nothing else: tables, pictures, runs -> HTML."""

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from experiments.report.findings import DATASETS, Run, Spread, spreads
from experiments.report.pictures import Picture
from experiments.report.provenance import what_was_run
from experiments.report.sentences import in_short, order
from experiments.report.tables import Cell, Table, correlation

_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --back: #fdfdfb; --soft: #5a5a5a;
  --line: #d5d5d0; --fold: #f1f1ec; --mark: #0a5a94; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e2; --back: #17181a; --soft: #a8a8a4;
  --line: #3c3d40; --fold: #232427; --mark: #86c1f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
a { color: var(--mark); }
nav ul { columns: 16rem; padding-left: 1.2rem; margin: .4rem 0; }
blockquote { margin: .8rem 0; padding: .1rem .9rem; border-left: 3px solid var(--line);
  color: var(--soft); }
blockquote p { margin: .4rem 0; }
.box { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem;
  margin: .8rem 0 .3rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums;
  width: 100%; }
th, td { padding: .3rem .6rem; text-align: left; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { background: var(--fold); }
tbody tr:last-child > * { border-bottom: 0; }
tbody th { font-weight: 600; background: var(--back); position: sticky; left: 0; }
tbody .group th { color: var(--soft); padding-top: .7rem; }
.soft, .note { color: var(--soft); }
.note { font-size: .88rem; margin: .2rem 0 1rem; }
.odd { color: #b3261e; font-weight: 600; }
@media (prefers-color-scheme: dark) { .odd { color: #ff9c92; } }
figure { margin: 1rem 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; background: #fff;
  border-radius: .4rem; padding: .5rem; }
figure img.wide { width: 100%; max-width: 40rem; }
figcaption { font-size: .88rem; color: var(--soft); margin-top: .4rem; }
details summary { cursor: pointer; }
td details div { padding: .25rem 0 .1rem; font-size: .8rem; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
  background: var(--fold); padding: .05em .25em; border-radius: .2em; }
p code, li { overflow-wrap: anywhere; }
@media (max-width: 30rem) { tbody th { max-width: 9rem; white-space: normal; } }
"""


def embedded(picture: Picture, content: bytes) -> str:
    """A picture as an element of the page, with its pixels or lines in it."""
    kind = "png" if picture.raster else "svg+xml"
    data = base64.b64encode(content).decode()
    size = "" if picture.raster else ' class="wide"'
    return f'<img{size} alt="{escape(picture.alt)}" src="data:image/{kind};base64,{data}">'


def _table(table: Table) -> str:
    """A table in a box of its own to scroll in, above its caption."""
    columns, rows = table.columns[table.grouped :], []
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    for group, own in itertools.groupby(table.rows, lambda row: row[0].text * table.grouped):
        if group:
            wide = f'scope="rowgroup" colspan="{len(columns)}"'
            rows.append(f'<tr class="group"><th {wide}>{escape(group)}</th></tr>\n')
        rows += [f"<tr>{''.join(_cells(row[table.grouped :]))}</tr>\n" for row in own]
    caption = "".join(
        f'<span class="odd">{escape(part)} </span>'
        if part.startswith("ATTENTION")
        else escape(part)
        for part in _sentences(table.caption)
    )
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody></table></div>\n"
        f'<p class="note">{caption}</p>\n'
    )


def _sentences(text: str) -> list[str]:
    """Cuts a caption so that its warnings stand by themselves."""
    first, *rest = text.split("ATTENTION")
    return [first, *(f"ATTENTION{part}" for part in rest)]


def _cells(row: Sequence[Cell]) -> Iterable[str]:
    for i, cell in enumerate(row):
        text = escape(cell.text)
        if cell.seeds:
            seeds = "".join(
                f"<div>{escape(value)} <code>{escape(command)}</code></div>"
                for value, command in cell.seeds
            )
            text = f"<details><summary>{text}</summary>{seeds}</details>"
        elif cell.text.startswith("not "):
            text = f'<span class="soft">{text}</span>'
        yield f'<th scope="row">{text}</th>' if i == 0 else f"<td>{text}</td>"


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>\n"


def _paper(text: str) -> str:
    return f"<blockquote><p>The paper: {text}</p></blockquote>\n"


def html(runs: Sequence[Run], tables: Mapping[str, Table], pictures: Mapping[str, str]) -> str:
    """The whole page."""
    sections: list[tuple[str, str, str]] = [
        ("short", "In short", _short(runs)),
        ("table1", "Table 1: CIFAR-10", _table1(runs, tables)),
        ("figure3", "Figure 3: error against angle", _figure3(runs, tables, pictures)),
        ("figure4", "Figure 4: rotation augmentation", _figure4(tables, pictures)),
        ("figure5", "Figure 5: layer by layer", _figure5(runs, tables, pictures)),
        ("beyond", "Beyond the paper", _beyond(runs, tables, pictures)),
        ("appendix", "Appendix: pictures", _appendix(pictures)),
        ("runs", "What was run", _runs(runs)),
    ]
    contents = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{title}</h2>\n{text}</section>\n'
        for name, title, text in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>gconv_jax: the evidence</title>\n<style>{_STYLE}</style>\n</head>\n"
        "<body>\n<main>\n"
        "<h1>Learned bases for rotating filters: the paper’s evidence, measured again</h1>\n"
        f'{_intro(runs)}<nav aria-label="contents"><ul>{contents}</ul></nav>\n'
        f"{body}</main>\n</body>\n</html>\n"
    )


def _intro(runs: Sequence[Run]) -> str:
    return (
        "<p>“Learning to Convolve: A Generalized Weight-Tying Approach” (Diaconu and Worrall, ICML "
        "2019, arXiv 1905.04663) learns how to rotate convolution filters. This page has its "
        "tables and figures as gconv_jax finds them, beside what the paper says, and one basis "
        f"that the paper does not have, the closed form. All numbers come from {len(runs)} result "
        "files, one for each trained network. A number with a triangle opens: it shows each seed, "
        "and the command that makes it again.</p>\n"
    )


def _short(runs: Sequence[Run]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in in_short(runs))}</ul>\n" + (
        '<p class="note">Standard deviations are over seeds, with n − 1. An order between two '
        "methods is claimed only where mean ± standard deviation of both do not overlap and both "
        "have at least two seeds; with so few seeds even that is weak evidence.</p>\n"
    )


def _orders(title: str, found: Mapping[str, Spread | None], *, lower: bool = False) -> str:
    return f"<p><strong>{title}.</strong> {escape(order(found, lower=lower))}</p>\n"


def _table1(runs: Sequence[Run], tables: Mapping[str, Table]) -> str:
    def own(augment: str) -> dict[str, Spread | None]:
        return spreads(runs, "cifar10", augment, lambda run: run.accuracy)

    return (
        _paper(
            "without rotation augmentation even the random basis does well; with it, networks "
            "with rotation built in lose little and the all-CNN loses much. Learned bases are "
            "on a par with those made by hand or a little better. One run each."
        )
        + _table(tables["table1"])
        + _orders("Upright", own("none"))
        + _orders("Full rotation", own("full"))
    )


def _figure3(runs: Sequence[Run], tables: Mapping[str, Table], pictures: Mapping[str, str]) -> str:
    orders = "".join(
        _orders(
            f"Worst increase, {title}",
            spreads(runs, dataset, "none", lambda run: run.increase),
            lower=True,
        )
        for dataset, title in DATASETS.items()
    )
    return (
        _paper(
            "partial is best over all angles: at its worst it has about 2 points more error than "
            "at its best on MNIST and about 20 on CIFAR-10, the other interpolations 7 to 10 and "
            "30 to 40. The fully learned basis does not do well. (Validation error there, test "
            "error here.)"
        )
        + _figure(
            pictures["figure3"],
            "Test error against the angle by which the test images are turned, for networks that "
            "never saw a turned image. Solid: learned bases. Dash-dotted: bases made by hand. "
            "Dashed: no rotation built in. Lines are means over seeds, bands one standard "
            "deviation.",
        )
        + _table(tables["figure3"])
        + orders
    )


def _figure4(tables: Mapping[str, Table], pictures: Mapping[str, str]) -> str:
    return (
        _paper(
            "the more rotation there is in training, the flatter the curve and the lower the error "
            "between multiples of 45 degrees. Multiples of 90 alone bring nothing, since partial "
            "is equivariant to them already. On MNIST the error on upright images falls too; on "
            "CIFAR-10 the best error stays as it is."
        )
        + _figure(
            pictures["figure4"],
            "The same for the partial basis, trained with images that are not turned (none), "
            "turned by multiples of 90 or 45 degrees, or by any angle (full).",
        )
        + _table(tables["figure4"])
    )


def _figure5(runs: Sequence[Run], tables: Mapping[str, Table], pictures: Mapping[str, str]) -> str:
    orders = "".join(
        _orders(
            f"Layer 9, {title}",
            spreads(runs, dataset, "none", lambda run: run.layer("conv9")),
            lower=True,
        )
        for dataset, title in DATASETS.items()
    )
    return (
        _paper(
            "errors grow with depth. Bases made by hand have larger ones than learned bases, most "
            "of all at the first layer. Full begins like partial and ends like bilinear or "
            "gaussian, perhaps because small asymmetries build up."
        )
        + _figure(
            pictures["figure5"],
            "How much the output of each convolution changes, beyond turning along, when the input "
            "turns; after turning back, in the middle of the maps. The all-CNN has no "
            "orientations: its maps are only turned back.",
        )
        + _table(tables["figure5"])
        + orders
        + "<h3>Where a turn costs accuracy</h3>\n"
        + _table(tables["onset"])
    )


def _beyond(runs: Sequence[Run], tables: Mapping[str, Table], pictures: Mapping[str, str]) -> str:
    ranks = "; ".join(
        f"{title}: {correlation(runs, dataset, 'error')} for the error, "
        f"{correlation(runs, dataset, 'condition_number')} for the condition number"
        for dataset, title in DATASETS.items()
    )
    more = ""
    if tables["whole"].rows:
        found = spreads(runs, "mnist", "none", lambda run: run.increase, whole=True)
        there = {name: of for name, of in found.items() if of is not None}
        more = (
            "<h3>All training images</h3>\n"
            + _table(tables["whole"])
            + _orders("Worst increase", there, lower=True)
        )
    return (
        more
        + "<h3>Larger filters and more orientations</h3>\n"
        + _table(tables["sizes"])
        + "<h3>Does a better basis make a more robust network?</h3>\n"
        + _figure(
            pictures["bases"],
            "Each point is a basis: to the left it rotates arbitrary filters better, or spans them "
            "more evenly; further down its networks depend less on the angle. Bars are one "
            "standard deviation over seeds. Log axes.",
        )
        + f"<p>Spearman’s rank correlation with the worst increase: {escape(ranks)}. Several "
        "learned bases have almost the same error, so their ranks among each other mean little, "
        "and equal condition numbers share a rank.</p>\n" + _table(tables["bases"])
    )


def _appendix(pictures: Mapping[str, str]) -> str:
    return (
        _figure(
            pictures["basis"],
            "The partial basis that ships with the package: elements across, orientations down. "
            "Red is positive, blue negative.",
        )
        + _figure(
            pictures["filters"],
            "Filters of the first layer of a network on the partial basis, trained on CIFAR-10: "
            "channels across, orientations down, three colours; grey is zero. The coefficients are "
            "the same in each column, only the basis turns.",
        )
        + _figure(
            pictures["activations"],
            "One channel of layer 6 of the same network, before the nonlinearity, as its input "
            "image turns: at the orientation that turns along, and turned back. All maps that are "
            "turned back should look alike. Change: squared difference from the first of them, "
            "relative to it, in the middle half.",
        )
        + _figure(
            pictures["reconstructions"],
            "Four test images of CIFAR-10 from the package: the input, the turned target, its "
            "reconstruction by the partial basis from responses to the input, and the difference, "
            "enlarged, in the middle half where the loss looks.",
        )
        + _figure(
            pictures["rotations"],
            "One random filter, turned by five bases. Interpolation washes it out between quarter "
            "turns.",
        )
    )


def _runs(runs: Sequence[Run]) -> str:
    text, every = what_was_run(runs)
    return f"{text}<details><summary>All {len(runs)} runs</summary>{_table(every)}</details>\n"
