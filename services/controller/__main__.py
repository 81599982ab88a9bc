"""`python -m services.controller`."""

from services.controller.settings import ControllerSettings
from shared.runtime.entry import start

if __name__ == "__main__":
    start("controller", ControllerSettings)
