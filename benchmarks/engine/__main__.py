"""`python -m benchmarks.engine`: the grid of loads."""

from benchmarks.engine.grid import main

if __name__ == "__main__":
    main()
