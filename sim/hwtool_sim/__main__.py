"""`python -m hwtool_sim`: the simulated chips as a process."""

from hwtool_sim.process import main

if __name__ == "__main__":
    main()
