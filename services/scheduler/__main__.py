"""`python -m services.scheduler`: see `--help`."""

from services.scheduler.app import build
from services.scheduler.settings import SchedulerSettings
from shared.runtime.service import main

if __name__ == "__main__":
    main("scheduler", SchedulerSettings, build)
