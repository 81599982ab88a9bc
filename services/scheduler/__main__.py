"""`python -m services.scheduler`: see `--help`; with `replay DUMP` a recorded cycle, offline."""

import sys

from services.scheduler.settings import SchedulerSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    if sys.argv[1:2] == ["replay"]:
        from services.scheduler.replay import main as replay

        sys.exit(replay(sys.argv[2:]))
    start("scheduler", SchedulerSettings)
