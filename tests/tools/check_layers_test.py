"""What tools/check_layers.py lets pass, and what it does not, in a small tree made for it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"
GOOD = {
    "src/layers.txt": "base:\nwire: base\nos: base  # a comment\napps_tool: base wire\n",
    "src/base/a.h": "#include <vector>\n",
    "src/wire/b.cc": '#include "base/a.h"\n#include "wire/b.h"\n',
    "src/os/c.h": '#include "base/a.h"\n',
    "apps/tool/main.cc": '#include "base/a.h"\n#include "wire/b.h"\n',
}


class CheckLayers(unittest.TestCase):
    def check(self, **changed):
        """(exit status, output) for the good tree with these files changed."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in (GOOD | changed).items():
                file = pathlib.Path(root, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def test_a_tree_that_follows_passes_silently(self):
        self.assertEqual(self.check(), (0, ""))

    def test_a_module_may_not_include_its_neighbour(self):
        status, output = self.check(**{"src/wire/b.cc": '\n#include "os/c.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/wire/b.cc:2: wire may not include os", output)

    def test_a_module_may_not_include_what_is_above_it(self):
        status, output = self.check(**{"src/base/a.h": '#  include "wire/b.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/base/a.h:1: base may not include wire", output)

    def test_an_app_is_held_to_its_line(self):
        status, output = self.check(**{"apps/tool/main.cc": '#include "os/c.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("apps/tool/main.cc:1: apps_tool may not include os", output)

    def test_a_folder_without_a_line_is_named(self):
        status, output = self.check(**{"apps/other/main.cc": ""})
        self.assertEqual(status, 1)
        self.assertIn("the module apps_other is not in src/layers.txt", output)

    def test_a_line_may_not_name_a_module_below_it(self):
        status, output = self.check(**{"src/layers.txt": "base: wire\nwire: base\n"})
        self.assertEqual(status, 1)
        self.assertIn("base names wire, which is not above it", output)


if __name__ == "__main__":
    unittest.main()
