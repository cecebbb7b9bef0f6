"""The pages of scripts/bench and scripts/demo: what they show of given figures."""

import pathlib
import sys
import unittest
from xml.etree import ElementTree

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))

from bench_lib import page, series  # noqa: E402
from bench_lib.figures import Headline, plain, spread  # noqa: E402
from demo_lib import zoom  # noqa: E402
from demo_lib.failure import Failure  # noqa: E402


class Figures(unittest.TestCase):
    def test_numbers_have_no_exponent(self):
        for value, text in ((0, "0"), (0.00123, "0.00123"), (0.5, "0.500"), (1.957, "1.96"), (-23.46, "-23.5"),
                            (196.4, "196"), (1960, "1,960"), (1234567.8, "1,234,568")):
            self.assertEqual(plain(value), text)
        self.assertEqual(spread([1960, 2.5]), "2.50 – 1,960")

    def test_a_ratio_is_of_the_same_round(self):
        line = Headline("blackout", "ms", [10, 30, 20], "plain CRIU", [20, 30, 80])
        self.assertEqual(line.ratio(), 0.5)
        self.assertTrue(line.is_better())
        self.assertEqual(line.row(), ["blackout, ms", "20.0", "plain CRIU", "30.0", "0.500 (less is better)"])

    def test_more_may_be_better(self):
        self.assertFalse(Headline("bandwidth", "Gbit/s", [1], "TCP", [2], True).is_better())
        self.assertTrue(Headline("bandwidth", "Gbit/s", [2], "TCP", [1], True).is_better())


class Series(unittest.TestCase):
    LINES = "3.00 1 100\n3.01 0 0\nconnected\n3.50 2 300\n4.00 1 50\n4.01 1 50\n5.00 0 0\n"

    def test_it_is_found_among_other_lines(self):
        self.assertEqual(series.points(self.LINES),
                         [(3.0, 100), (3.01, 0), (3.5, 300), (4.0, 50), (4.01, 50), (5.0, 0)])

    def test_a_rate_is_of_the_time_asked_for(self):
        points = series.points(self.LINES)
        self.assertEqual(series.rate(points, 3, 4), 400)
        self.assertEqual(series.rate(points, 3.5, 5.5), 200)

    def test_a_standstill_is_the_longest_time_without_a_byte(self):
        points = series.points(self.LINES)
        self.assertEqual(series.standstill(points, 0), (3.0, 3.5))
        self.assertEqual(series.standstill(points, 3.5), (3.5, 4.0))
        with self.assertRaises(Failure):
            series.standstill(points, 4.01)


class BenchPage(unittest.TestCase):
    TABLES = [{"title": "Blackout", "head": ["", "median"], "rows": [["<1 QP>", "1,960"]], "note": "",
               "bars": ("ms", {"1 QP": [1960, 2050], "TCP": [1000, 1100]})}]

    def test_it_begins_with_the_summary(self):
        headlines = [Headline("blackout", "ms", [1960], "plain CRIU", [980]),
                     Headline("rate", "a second", [3], "TCP", [1], True)]
        text = page.render("a machine", headlines, self.TABLES)
        self.assertLess(text.index("<h2>Summary</h2>"), text.index("<h2>Blackout</h2>"))
        self.assertIn('<td>1,960</td><td>plain CRIU</td><td>980</td><td class="worse">2.00 (less is better)</td>', text)
        self.assertIn('<td class="better">3.00 (more is better)</td>', text)
        self.assertIn("&lt;1 QP&gt;", text)
        self.assertNotIn("e+0", text)

    def test_without_peers_there_is_no_summary(self):
        self.assertNotIn("Summary", page.render("a machine", [], self.TABLES))


class Played:
    """A pair that moves 8 Gbit/s, and nothing in between."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end

    def series(self, begin, end, bin_seconds):
        moments = [begin + k * bin_seconds for k in range(int((end - begin) / bin_seconds))]
        return [(at - begin, 0.0 if self.begin - 1e-9 < at < self.end - 1e-9 else 8.0) for at in moments]


class DemoPage(unittest.TestCase):
    PAIR = Played(100.05, 100.15)
    MOVE = {"number": 1, "program": "ib_send_bw", "role": "client", "from": "h1", "to": "h3", "blackout_ms": 100,
            "gap": (100.05, 100.15), "resume_ms": 5,
            "steps": [("check", 99.9), ("stop", 100.04), ("dump", 100.06), ("resume", 100.14), ("moved", 100.2)]}

    def test_a_blackout_is_where_nothing_arrives(self):
        self.assertAlmostEqual(zoom.quietest(self.PAIR, 100.0, 100.4, 0.1), 100.05)

    def test_its_bins_are_empty(self):
        zoomed = zoom.zoom(self.PAIR, self.MOVE)
        for at, rate in zoomed["bins"]:
            self.assertEqual(rate, 0 if -1e-6 < at < 0.1 - 1e-6 else 8, at)
        self.assertEqual([step for step, _, _ in zoomed["steps"]], ["stop", "dump", "resume"])
        self.assertAlmostEqual(zoomed["steps"][-1][2], 0.095)

    def test_the_picture_has_its_length_and_its_steps(self):
        text = zoom.zooms([self.MOVE | {"zoom": zoom.zoom(self.PAIR, self.MOVE)}], {"ib_send_bw": "--perf"})
        ElementTree.fromstring(text)
        self.assertIn(">100 ms</text>", text)
        self.assertIn("<title>dump: 80.0 ms</title>", text)


if __name__ == "__main__":
    unittest.main()
