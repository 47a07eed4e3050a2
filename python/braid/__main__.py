"""`python -m braid`: the command line of Braid, in the module itself."""

import sys


def main():
    from braid import _braid
    sys.stdout.flush()
    sys.exit(_braid.command_line(sys.argv[1:], [sys.executable, "-m", "braid"]))


if __name__ == "__main__":
    main()
