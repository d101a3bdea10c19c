"""The program `stapes`, and `python -m stapes`."""

import sys


def main() -> int:
    """Run the command line; an interrupt while it is being imported is one like any other."""
    try:
        from stapes.cli import main as command

        return command()
    except KeyboardInterrupt:
        sys.stderr.write("stapes: error: interrupted.\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
