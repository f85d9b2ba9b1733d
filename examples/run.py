"""Runs an example with a broker of its own: run.py HUFUD PROGRAM [ARGUMENT ...]"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
from private_broker import LIMIT_S, PrivateBroker  # noqa: E402


def main():
    broker = PrivateBroker(sys.argv[1])
    try:
        return broker.spawn(sys.argv[2:]).wait(LIMIT_S)
    finally:
        broker.close()


if __name__ == "__main__":
    sys.exit(main())
