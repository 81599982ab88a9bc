"""`python -m services.controller`."""

from services.controller.app import SERVICE, build
from services.controller.settings import ControllerSettings
from shared.runtime.service import main

if __name__ == "__main__":
    main(SERVICE, ControllerSettings, build)
