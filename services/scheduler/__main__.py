"""`python -m services.scheduler`: see `--help`; with `replay DUMP` a recorded cycle, offline."""

import sys

from services.scheduler.app import SERVICE, build
from services.scheduler.replay import main as replay
from services.scheduler.settings import SchedulerSettings
from shared.runtime.service import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["replay"]:
        sys.exit(replay(sys.argv[2:]))
    main(SERVICE, SchedulerSettings, build)
