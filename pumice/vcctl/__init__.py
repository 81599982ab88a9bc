"""vcctl and Slurm's names (`vsub`, `vjobs`, …): Volcano's command line, its words and outputs.

Scripts written for Volcano's programs continue working, so help texts, columns, messages and exit
codes are theirs to the byte; `make vcctl-check` compares the two.
"""
