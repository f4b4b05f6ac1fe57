"""`python -m gpubus`: the same as the command `gpubus`."""

from gpubus.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
