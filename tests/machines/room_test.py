"""scripts/vmlab looks whether the disk has room before it makes anything."""

import pathlib
import shutil
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))

from demo_lib.failure import Failure  # noqa: E402
from vmlab_lib import lab  # noqa: E402


class Room(unittest.TestCase):
    def test_without_room_it_says_so_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            machines = shutil.disk_usage(folder).free // lab.ROOM + 1000
            with self.assertRaises(Failure) as raised:
                lab.need_room(pathlib.Path(folder), machines)
            self.assertRegex(str(raised.exception),
                             rf"^not enough room in {folder} for {machines} machines: [\d,]+ MiB needed, "
                             r"[\d,]+ MiB free; make some$")

    def test_with_room_it_says_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            lab.need_room(pathlib.Path(folder), 0)


if __name__ == "__main__":
    unittest.main()
