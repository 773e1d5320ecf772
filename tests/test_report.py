"""The numbers of the report are those of the runs, and it claims nothing that they do not."""

import re
import statistics

import pytest

from experiments.report import pictures
from experiments.report.findings import (
    METHODS,
    Spread,
    apart,
    rank_correlation,
    read,
    spread,
    spreads,
)
from experiments.report.sentences import in_short, order, scale
from experiments.report.tables import correlation, markdown, tables
from tests.toy_evidence import COMMAND, loaded, onset, record, save, some_evidence


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("evidence"), *some_evidence())


def row(table, *start):
    """The texts of the row of a table that begins with these."""
    texts = [[cell.text for cell in cells] for cells in table.rows]
    [found] = [each[len(start) :] for each in texts if each[: len(start)] == list(start)]
    return found


def test_spread_is_that_of_a_sample():
    values = [0.1, 0.4, 0.7]
    assert spread(values) == Spread(pytest.approx(0.4), pytest.approx(0.3), 3)
    assert spread(values).std == pytest.approx(statistics.stdev(values))
    assert spread([0.5, None]) == Spread(0.5, None, 1)
    assert spread([None]) is None


def test_table_1_by_hand(runs):
    table = tables(runs)["table1"]
    # 80 and 82, 75 and 77: means 81 and 76, standard deviation the root of 2
    assert row(table, "partial") == [
        "81.00 ± 1.41 (2)",
        "90.93",
        "76.00 ± 1.41 (2)",
        "89.60",
        "78,450",
    ]
    assert row(table, "all-CNN")[0] == "70.00 ± 0.00 (2)"
    assert row(table, "closed form") == ["not run", "–", "not run", "–", "not run"]
    assert row(table, "weiler")[:2] == ["not run", "90.20"]
    assert [cells[0].text for cells in table.rows] == [m.label for m in METHODS.values()]
    [partial] = [cells for cells in table.rows if cells[0].text == "partial"]
    assert partial[1].seeds == (
        ("80.00", f"{COMMAND} cifar10-partial-none-seed0"),
        ("82.00", f"{COMMAND} cifar10-partial-none-seed1"),
    )


def test_angles_by_hand(runs):
    table = tables(runs)["figure3"]
    # 12 - 10 and 14 - 10 points; quarter turns are all at 10
    assert row(table, "MNIST", "partial") == [
        "3.00 ± 1.41 (2)",
        "10.00 ± 0.00 (2)",
        "0.00 ± 0.00 (2)",
        "24.00 ± 0.00 (2)",
        "2",
    ]
    # quarter turns are at 10, 50, 50 and 50
    assert row(table, "MNIST", "all-CNN")[:3] == [
        "40.00 ± 0.00 (2)",
        "10.00 ± 0.00 (2)",
        "40.00 ± 0.00 (2)",
    ]
    assert row(table, "MNIST", "weiler")[0] == "15.00 (1)"
    assert row(table, "CIFAR-10", "gaussian") == 4 * ["not run"] + ["30 to 40"]
    figure4 = tables(runs)["figure4"]
    assert row(figure4, "CIFAR-10", "full (any angle)")[0] == "5.00 ± 0.00 (2)"
    assert row(figure4, "MNIST", "multiples of 45°") == 4 * ["not run"]


def test_layers_are_means_over_turns_but_the_first(tmp_path):
    runs = loaded(
        tmp_path,
        record("mnist", "partial", seed=0, layers=0.01),
        record("mnist", "partial", seed=1, layers=0.03),
        record("mnist", "full", layers=None),
        record("mnist", "weiler", layers=0.00001),
    )
    table = tables(runs)["figure5"]
    found = row(table, "MNIST", "partial")
    assert found[0] == "0.0200 ± 0.0141 (2)"
    assert found[8] == "0.1800 ± 0.1273 (2)"
    assert row(table, "MNIST", "full") == 9 * ["not measured"]
    assert row(table, "MNIST", "weiler")[0] == "1.0e-05 (1)"


def test_where_it_is_lost_is_of_runs_that_measured_it(tmp_path):
    runs = loaded(
        tmp_path,
        record("mnist", "partial", seed=0, onset=onset(0.03, 0.01)),
        record("mnist", "partial", seed=1, onset=onset(0.05, 0.01)),
        record("mnist", "partial", seed=2),
        record("mnist", "weiler"),
    )
    table = tables(runs)["onset"]
    assert table.columns[2:] == ("the input", "after layer 1")
    assert row(table, "MNIST", "partial") == ["4.00 ± 1.41 (2)", "1.00 ± 0.00 (2)"]
    assert len(table.rows) == 1


def test_where_it_is_lost_in_a_sentence(tmp_path):
    runs = loaded(tmp_path, record("mnist", "closed_form", onset=onset(0.03, 0.01)))
    said = next(text for text in in_short(runs) if "45 degrees" in text)
    assert "3.00 (1 seed) when the input is turned, and when it is the map after layer 1: 1" in said


def test_results_from_before_it_was_measured_are_read(tmp_path):
    name, content = record("mnist", "partial")
    del content["onset"]
    [run] = loaded(tmp_path, (name, content))
    assert run.onset(0) is None


def test_other_sizes_are_beside_the_usual_one(runs):
    table = tables(runs)["sizes"]
    labels = [tuple(cell.text for cell in cells[1:4]) for cells in table.rows]
    assert labels[:3] == [
        ("closed form", "3x3", "8"),
        ("closed form", "5x5", "8"),
        ("closed form", "3x3", "16"),
    ]
    assert row(table, "MNIST", "closed form", "5x5", "8")[0] == "0.0098 (1)"
    assert row(table, "MNIST", "closed form", "3x3", "8")[0] == "not run"


def test_order_is_claimed_only_between_spreads_that_are_apart():
    found = {
        "a": Spread(0.90, 0.02, 3),
        "b": Spread(0.87, 0.02, 3),  # overlaps with a
        "c": Spread(0.80, 0.01, 2),  # apart from both
        "d": Spread(0.10, None, 1),  # far away, but one seed
        "e": None,
    }
    said = order(found)
    assert "a and b are ahead of c." in said
    assert "other 8 of 10 pairs" in said
    claims = said.partition(". No order")[0].removeprefix("Where spreads do not overlap: ")
    assert claims == "a and b are ahead of c"
    assert "c is lower than a and b." in order(found, lower=True)
    assert order({"a": found["a"], "b": found["b"]}).startswith("No order is claimed")
    assert not apart(Spread(1.0, 0.5, 2), Spread(0.0, 0.5, 2))  # they touch
    assert apart(Spread(1.01, 0.5, 2), Spread(0.0, 0.5, 2))


def test_page_claims_no_order_for_single_seeds(tmp_path):
    runs = loaded(
        tmp_path,
        record("cifar10", "partial", "full", accuracy=0.9),
        record("cifar10", "conv", "full", accuracy=0.1),
    )
    assert order(spreads(runs, "cifar10", "full", lambda run: run.accuracy)).startswith("No order")
    [said] = [text for text in in_short(runs) if "beside all-CNN" in text]
    assert "partial 90.00 (1 seed) percent and all-CNN 10.00 (1 seed)" in said
    assert "no order is claimed" in said
    assert "5.8 points ahead" in said  # 89.93 - 84.14


def test_in_short_by_hand(runs):
    mnist, larger, where, _, _, ahead, quarters = in_short(runs)
    assert "partial 3.00 ± 1.41 (2 seeds); closed form not run." in mnist
    assert "weiler 15.00 (1 seed); bilinear not run; gaussian not run." in mnist
    assert larger.startswith("MNIST, the same with 16 orientations: not run. And with 5x5 filters")
    assert "5x5 filters: closed form 5.00 (1 seed)." in larger
    assert where.endswith("costs the closed form: not run.")
    assert "a difference of +15.0 points." in ahead
    assert "over 8 runs the error changes there by 0.00 points at most" in quarters


def test_runs_on_all_images_stand_apart(runs, tmp_path):
    few = [record("mnist", "weiler", seed=seed, errors=[0.1, 0.2] * 4) for seed in (0, 1)]
    many = [
        record("mnist", "weiler", seed=seed, errors=[0.05, 0.06 + seed / 100] * 4, whole=True)
        for seed in (0, 1)
    ]
    for _, old in few:
        del old["cell"]["whole"]  # as in results of before there were such runs
    both = loaded(tmp_path, *few, *many)
    found = tables(both)
    assert row(found["figure3"], "MNIST", "weiler")[0] == "10.00 ± 0.00 (2)"
    assert row(found["whole"], "weiler")[0] == "1.50 ± 0.71 (2)"
    assert "55,000 training images" in found["whole"].caption
    assert "10,000 training images" in found["figure3"].caption
    assert not any("ATTENTION" in table.caption for table in found.values())
    said = in_short(both)[2]  # after what is "the same" as the first
    assert said.startswith("MNIST, trained upright on all training images, points of error")
    assert "weiler 1.50 ± 0.71 (2 seeds)" in said
    assert not tables(runs)["whole"].rows
    assert "All training images" not in markdown(runs, list(tables(runs)))
    assert not any("on all training images" in text for text in in_short(runs))


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [10, 20, 25]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, over the root of 1.5 times 2
    assert rank_correlation([5, 5, 9], [1, 2, 3]) == pytest.approx(1.5 / 3**0.5)
    assert rank_correlation([1, 2], [1, 2]) is None
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_correlation_says_how_many(runs, tmp_path):
    assert correlation(runs, "cifar10", "error") == "too few to tell (1 bases)"
    better = [("partial", 0.004, 0.1), ("weiler", 0.01, 0.2), ("bilinear", 0.09, 0.4)]
    runs = loaded(
        tmp_path,
        *(
            record("mnist", basis, quality=(error, 1.00001 + i / 1e6), errors=[0.1, 0.1 + more] * 4)
            for i, (basis, error, more) in enumerate(better)
        ),
    )
    assert correlation(runs, "mnist", "error") == "1.00 (3 bases)"
    assert correlation(runs, "mnist", "condition_number") == "too few to tell (3 bases)"


def test_scale_is_said_and_differences_are_pointed_out(runs, tmp_path):
    said = scale(runs)
    assert said.startswith("Reduced scale (preset cpu), the same for every method. MNIST: ")
    assert "GroupAllCNN 8/16 and AllCNN 24/48, 10,000 training images, 6 epochs" in said
    assert "ATTENTION" not in said
    runs = loaded(
        tmp_path,
        record("cifar10", "partial", seed=0),
        record("cifar10", "partial", seed=1),
        record("cifar10", "conv", epochs=4),
    )
    said = tables(runs)["table1"].caption
    assert "the same for every method" not in said
    assert "ATTENTION" in said
    assert "epochs is 6 in most runs, but 4 in cifar10-conv-none-seed0." in said
    assert scale([]) == "Nothing of it has been run."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.pop("angles"), "lacks angles;"),
        (lambda r: r["final"]["test"].pop("accuracy"), "lacks final.test.accuracy;"),
        (lambda r: r["layers"]["errors"].pop("conv9"), "lacks layers.errors.conv9;"),
        (lambda r: r["angles"]["errors"].pop(), "one of angles.errors for each"),
        (lambda r: r["angles"].update(plain_error=float("nan")), "has nan for angles.plain_error"),
        (lambda r: r["angles"].update(errors=0.5), "must have a list for angles.errors"),
        (lambda r: r.update(scale=3), "must have an object for scale"),
        (lambda r: r["cell"].update(basis="fourier"), "has 'fourier' for cell.basis"),
        (lambda r: r.update(preset="paper"), "is a run of preset 'paper', not of 'cpu'"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, change, sentence):
    name, content = record("mnist", "partial")
    change(content)
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        loaded(tmp_path, (name, content), record("mnist", "conv"))
    [line] = str(error.value).splitlines()
    assert line.startswith(str(tmp_path / f"{name}.json"))
    assert line.endswith("; remove it, and `make evidence PRESET=cpu` makes it anew.")


def test_broken_twice_and_empty_are_told(tmp_path):
    with pytest.raises(ValueError, match="has no results to report; `make evidence PRESET=cpu`"):
        read(tmp_path / "nothing", "cpu")
    name, content = record("mnist", "partial")
    save(tmp_path, (name, content), ("copy", content))
    (tmp_path / "cut.json").write_text('{"command": "pyth')
    with pytest.raises(ValueError, match="is not valid JSON") as error:
        read(tmp_path, "cpu")
    cut, twice = str(error.value).splitlines()
    assert cut.startswith(f"{tmp_path / 'cut.json'} is not valid JSON")
    assert twice.startswith(f"copy.json and {name}.json in")


def test_a_singular_basis_is_at_the_edge_and_says_so(tmp_path):
    runs = loaded(tmp_path, record("mnist", "weiler", orientations=16, quality=(0.01, 4e14)))
    [point] = pictures._points(runs, "mnist", "condition_number")
    assert (point.label, point.x) == ("weiler G = 16: 4e+14 \N{RIGHTWARDS ARROW}", pictures._EDGE)
    assert "weiler G = 16" not in pictures._unseen(runs, "mnist", "condition_number")
    assert row(tables(runs)["bases"], "weiler G = 16")[1] == "4.0e+14 (1)"
